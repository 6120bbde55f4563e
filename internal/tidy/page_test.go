package tidy

import (
	"io/fs"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"testing"
)

// pageKinds are the kinds of files that the lab's page is made of. Whoever
// adds one says here what it must not hold.
var pageKinds = []string{".html", ".js", ".css", ".svg"}

// pageBans is what no file of the lab's page may hold: what the content
// security policy would refuse in a browser is refused here already, with its
// line, and so is what would load something from elsewhere or turn a
// visitor's text into markup.
var pageBans = []struct {
	kinds []string // empty means all
	re    *regexp.Regexp
	why   string
}{
	{nil, regexp.MustCompile(`\b(innerHTML|outerHTML|insertAdjacentHTML|document\.write|createContextualFragment|DOMParser|setHTMLUnsafe|srcdoc)\b`), "makes markup of text: build nodes and set textContent"},
	{nil, regexp.MustCompile(`\beval\(|new Function\(|javascript:`), "runs text as code"},
	{nil, regexp.MustCompile(`(?i)https?://`), "names an address elsewhere: the page loads nothing from anywhere else"},
	{nil, regexp.MustCompile(`["'(]//[a-z]`), "names an address elsewhere without a scheme"},
	{[]string{".html"}, regexp.MustCompile(`(?i)\sstyle\s*=|<style|\son[a-z]+\s*=`), "inline style or handler: the policy refuses it"},
	{[]string{".html"}, regexp.MustCompile(`(?i)<script(?:[^>]*)>\s*[^<\s]`), "inline script: the policy refuses it"},
	{[]string{".css"}, regexp.MustCompile(`@import|url\(\s*["']?(?:[a-z]+:)?//`), "loads a style from elsewhere"},
	{[]string{".js"}, regexp.MustCompile(`setAttribute\(\s*["'](?:style|on[a-z]+)["']`), "inline style or handler: the policy refuses it"},
}

// namespaces are addresses that are names: nothing is loaded from them.
var namespaces = regexp.MustCompile(`http://www\.w3\.org/(2000/svg|1999/xhtml|1999/xlink)`)

func pageFiles(t *testing.T) map[string]string {
	texts := map[string]string{}
	page := filepath.Join(root, "lab", "page")
	err := filepath.WalkDir(page, func(path string, d fs.DirEntry, err error) error {
		if err != nil || d.IsDir() {
			return err
		}
		if !slices.Contains(pageKinds, filepath.Ext(path)) {
			t.Errorf("%s: a file of the page is one of %q", path, pageKinds)
			return nil
		}
		text, err := os.ReadFile(path)
		texts[filepath.ToSlash(strings.TrimPrefix(path, root+string(filepath.Separator)))] = string(text)
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
	if len(texts) < 10 {
		t.Fatalf("only %d files in %s: looking in the wrong place", len(texts), page)
	}
	return texts
}

// pageFaults lists what one file of the page holds and must not.
func pageFaults(name, text string) []string {
	var found []string
	if n := strings.Count(text, "\n"); n > maxFileLines {
		found = append(found, name+" is longer than 500 lines: split it by concern")
	}
	for i, line := range strings.Split(text, "\n") {
		line = namespaces.ReplaceAllString(line, "")
		for _, ban := range pageBans {
			if (ban.kinds == nil || slices.Contains(ban.kinds, filepath.Ext(name))) && ban.re.MatchString(line) {
				found = append(found, name+":"+strconv.Itoa(i+1)+": "+strings.TrimSpace(line)+": "+ban.why)
			}
		}
	}
	return found
}

// TestPage holds the files of the lab's page to their size and to loading
// nothing from elsewhere and making no markup of text.
func TestPage(t *testing.T) {
	for name, text := range pageFiles(t) {
		for _, fault := range pageFaults(name, text) {
			t.Error(fault)
		}
	}
}

// TestPageCanFail holds the check itself.
func TestPageCanFail(t *testing.T) {
	refused := []struct{ name, text string }{
		{"a.js", "e.innerHTML = value"}, {"a.js", "e.insertAdjacentHTML('beforeend', v)"}, {"a.js", `import "https://cdn.example/x.js"`},
		{"a.js", `fetch("//cdn.example/x")`}, {"a.js", "new Function(text)"}, {"a.js", `e.setAttribute("style", "x")`},
		{"a.html", `<p style="color: red">`}, {"a.html", `<button onclick="x()">`}, {"a.html", "<script>alert(1)</script>"},
		{"a.html", `<link rel="stylesheet" href="//fonts.example/x.css">`}, {"a.css", `@import "x.css";`}, {"a.css", "background: url(//x.example/i.png)"},
		{"a.css", strings.Repeat("p { }\n", 501)},
	}
	for _, c := range refused {
		if len(pageFaults(c.name, c.text)) == 0 {
			t.Errorf("%s with %.60q is accepted", c.name, c.text)
		}
	}
	accepted := []struct{ name, text string }{
		{"a.js", "const svg = 'http://www.w3.org/2000/svg'; // one // comment"}, {"a.js", "e.style.setProperty('--left', x)"},
		{"a.html", `<script type="module" src="lab/app.js"></script>`}, {"a.css", "p { background: url(\"data:image/svg+xml,x\"); }"},
	}
	for _, c := range accepted {
		if faults := pageFaults(c.name, c.text); len(faults) != 0 {
			t.Errorf("%s with %q is refused: %q", c.name, c.text, faults)
		}
	}
}
