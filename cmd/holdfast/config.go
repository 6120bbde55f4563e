package main

import (
	"errors"
	"fmt"
	"io"
	"log/slog"
	"os"
	"sort"
	"strings"

	"github.com/spf13/pflag"
	"go.yaml.in/yaml/v3"
)

// maxConfigBytes is the longest configuration file that is read.
const maxConfigBytes = 1 << 20

// environmentPrefix begins the name of each variable of holdfast.
const environmentPrefix = "HOLDFAST_"

// environmentName is the variable that sets a flag: HOLDFAST_LOG_LEVEL for
// log-level.
func environmentName(flag string) string {
	return environmentPrefix + strings.ToUpper(strings.ReplaceAll(flag, "-", "_"))
}

// layerConfig sets the flags that the command line left alone: from the
// environment, else from the YAML file that the flag "config" (or its
// variable) names. An empty variable counts as not set, but an empty flag or
// key is refused. Every value passes through the flag's own check, so all three
// sources have one set of rules; an error names the source.
func layerConfig(flags *pflag.FlagSet, lookup func(string) (string, bool)) error {
	if err := refuseEmpty(flags); err != nil {
		return err
	}
	var failed []error
	flags.VisitAll(func(f *pflag.Flag) {
		v, ok := lookup(environmentName(f.Name))
		if f.Changed || f.Name == "help" || !ok || v == "" {
			return
		}
		if err := flags.Set(f.Name, v); err != nil {
			failed = append(failed, fmt.Errorf("environment variable %s=%q: %s", environmentName(f.Name), v, flagReason(err)))
		}
	})
	if len(failed) > 0 {
		return usagef("%w", errors.Join(failed...))
	}
	config := flags.Lookup("config")
	if config == nil || config.Value.String() == "" {
		return nil
	}
	return layerFile(flags, config.Value.String())
}

// refuseEmpty refuses flags that were given with nothing: a script's variable
// was empty. As if it were not given, --join would found a service of its own,
// and --operator-token-file would make everybody on the machine an operator.
func refuseEmpty(flags *pflag.FlagSet) error {
	var empty []string
	flags.Visit(func(f *pflag.Flag) {
		if f.Value.String() == "" {
			empty = append(empty, "--"+f.Name)
		}
	})
	if len(empty) > 0 {
		return usagef("nothing is given with %s: want a value, or the flag left out", strings.Join(empty, ", "))
	}
	return nil
}

// warnOfStrangers names the variables that look like settings, but are none: a
// misspelt one would otherwise be ignored silently. They are no reason not to
// start, because others may have put them there (Kubernetes does so for each
// service, by its name).
func warnOfStrangers(log *slog.Logger, flags *pflag.FlagSet, environ []string) {
	known := map[string]bool{serverVariable: true}
	for _, name := range grantVariables {
		known[name] = true
	}
	var settings, strangers []string
	flags.VisitAll(func(f *pflag.Flag) {
		if f.Name != "help" {
			known[environmentName(f.Name)] = true
			settings = append(settings, environmentName(f.Name))
		}
	})
	for _, e := range environ {
		if name, _, _ := strings.Cut(e, "="); strings.HasPrefix(name, environmentPrefix) && !known[name] {
			strangers = append(strangers, name)
		}
	}
	if len(strangers) > 0 {
		sort.Strings(strangers)
		log.Warn("environment variables that are no settings are ignored", "ignored", strings.Join(strangers, " "), "settings", strings.Join(settings, " "))
	}
}

// flagReason is what the flag's own check said, without pflag's frame.
func flagReason(err error) string {
	if e, ok := errors.AsType[*pflag.InvalidValueError](err); ok && e.Unwrap() != nil {
		return e.Unwrap().Error()
	}
	return err.Error()
}

// fileKeys are the keys that a file may have.
func fileKeys(flags *pflag.FlagSet) []string {
	var keys []string
	flags.VisitAll(func(f *pflag.Flag) {
		if f.Name != "config" && f.Name != "help" {
			keys = append(keys, f.Name)
		}
	})
	sort.Strings(keys)
	return keys
}

// layerFile sets the flags that nothing else has set from a YAML mapping of
// flag names to values. Unknown and repeated keys are errors: a setting that
// is silently ignored is worse than a server that does not start.
func layerFile(flags *pflag.FlagSet, path string) error {
	pairs, err := readMapping(path)
	if err != nil {
		return withCode(exitUsage, err)
	}
	keys := fileKeys(flags)
	seen := map[string]int{}
	for i := 0; i < len(pairs); i += 2 {
		key, value := pairs[i], pairs[i+1]
		at := fmt.Sprintf("config file %s, line %d", path, key.Line)
		f := flags.Lookup(key.Value)
		switch {
		case f == nil || f.Name == "config" || f.Name == "help":
			return usagef("%s: unknown key %q; allowed are: %s", at, key.Value, strings.Join(keys, ", "))
		case seen[f.Name] != 0:
			return usagef("%s: key %q was set before, in line %d; set it once", at, key.Value, seen[f.Name])
		case value.Kind != yaml.ScalarNode || value.Tag == "!!null":
			return usagef("%s: key %q has no single value; want %s: VALUE", at, key.Value, key.Value)
		case value.Value == "":
			return usagef("%s: nothing is given for key %q: want a value, or the key left out", at, key.Value)
		}
		seen[f.Name] = key.Line
		// Even a value that is overridden must be a good one, or a broken
		// file would surface on the day the override goes away.
		changed, old := f.Changed, f.Value.String()
		if err := f.Value.Set(value.Value); err != nil {
			return usagef("%s: %s: %q is not allowed: %s", at, key.Value, value.Value, flagReason(err))
		}
		if changed {
			if err := f.Value.Set(old); err != nil {
				return fmt.Errorf("restoring --%s: %w", f.Name, err)
			}
			continue
		}
		f.Changed = true
	}
	return nil
}

// readMapping reads the file's one document, a mapping (or nothing), and
// returns keys and values in turn.
func readMapping(path string) ([]*yaml.Node, error) {
	file, err := os.Open(path)
	if err != nil {
		return nil, fmt.Errorf("config file: %w", err)
	}
	defer file.Close()
	text, err := io.ReadAll(io.LimitReader(file, maxConfigBytes+1))
	if err != nil {
		return nil, fmt.Errorf("config file: %w", err)
	}
	if len(text) > maxConfigBytes {
		return nil, fmt.Errorf("config file %s is longer than %d bytes", path, maxConfigBytes)
	}
	dec := yaml.NewDecoder(strings.NewReader(string(text)))
	var doc, second yaml.Node
	if err := dec.Decode(&doc); errors.Is(err, io.EOF) {
		return nil, nil
	} else if err != nil {
		return nil, fmt.Errorf("config file %s: %w", path, err)
	}
	if err := dec.Decode(&second); !errors.Is(err, io.EOF) {
		return nil, fmt.Errorf("config file %s: want one YAML document, found more, or a defect after the first", path)
	}
	top := doc.Content[0]
	if top.Kind == yaml.ScalarNode && top.Tag == "!!null" {
		return nil, nil
	}
	if top.Kind != yaml.MappingNode {
		return nil, fmt.Errorf("config file %s, line %d: want a mapping of settings, such as 'listen: 127.0.0.1:7433'", path, top.Line)
	}
	return top.Content, nil
}
