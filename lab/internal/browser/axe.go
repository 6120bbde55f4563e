package browser

import (
	"fmt"
	"os"
	"path/filepath"
	"runtime"
	"sync"
)

// axeScript reads axe-core from where npm put it, beside the other tools of
// this repository.
var axeScript = sync.OnceValues(func() (string, error) {
	_, here, _, _ := runtime.Caller(0)
	web := filepath.Join(filepath.Dir(here), "..", "..", "..", "internal", "tools", "web")
	text, err := os.ReadFile(filepath.Join(web, "node_modules", "axe-core", "axe.min.js"))
	if err != nil {
		return "", fmt.Errorf("axe-core is not installed: run internal/tools/web/install (needs npm): %w", err)
	}
	return string(text), nil
})

// runAxe runs every rule that axe-core has, also those that are off by
// default or only best practice, and lists each violation with its places.
// What axe cannot decide by itself ("incomplete") is not a violation.
const runAxe = `(async () => {
	const rules = Object.fromEntries(axe.getRules().map((r) => [r.ruleId, {enabled: true}]));
	// Level AAA asks for a contrast of 7: 1 and is not what the page promises.
	for (const r of axe.getRules(["wcag2aaa"])) delete rules[r.ruleId];
	const found = await axe.run(document, {rules, resultTypes: ["violations"]});
	return found.violations.flatMap((v) => v.nodes.map((n) =>
		v.id + " (" + v.impact + "): " + n.target.join(" ") + ": " + n.failureSummary.replace(/\s+/g, " ") + " in " + n.html.slice(0, 160)));
})()`

// Axe checks the page as it is now with axe-core and returns the violations
// of its accessibility rules, one a place.
func (t *Tab) Axe() ([]string, error) {
	script, err := axeScript()
	if err != nil {
		return nil, err
	}
	there, err := Eval[bool](t, "typeof axe !== 'undefined'")
	if err != nil {
		return nil, err
	}
	if !there {
		if _, err := Eval[bool](t, script+"\n;true"); err != nil {
			return nil, err
		}
	}
	return Eval[[]string](t, runAxe)
}
