package lab

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"slices"
	"strings"
	"unicode/utf8"
)

// decodeStrict reads one JSON object into v and refuses what package json lets
// pass: unknown fields and fields in another case, a field given twice,
// anything behind the object, and bytes that are no UTF-8. fields are the
// names that may occur, at any depth. An empty text is an empty object.
func decodeStrict(text []byte, fields []string, v any) error {
	if len(bytes.TrimSpace(text)) == 0 {
		return nil
	}
	if !utf8.Valid(text) {
		return badf("the body is not UTF-8")
	}
	if err := checkFields(text, fields); err != nil {
		return err
	}
	d := json.NewDecoder(bytes.NewReader(text))
	d.DisallowUnknownFields() // those that may occur, but not here
	err := d.Decode(v)
	if wrong, ok := errors.AsType[*json.UnmarshalTypeError](err); ok {
		return badf("%q is a JSON %s: want %s", fieldOf(wrong.Field, fields), wrong.Value, wanted(wrong.Type.Kind().String()))
	}
	if err != nil {
		return badf("the body is not the JSON that is wanted: %v", err)
	}
	return nil
}

// fieldOf is a field's path as its sender knows it: package json puts the names
// of embedded Go types into it.
func fieldOf(path string, fields []string) string {
	return strings.Join(slices.DeleteFunc(strings.Split(path, "."), func(name string) bool { return !slices.Contains(fields, name) }), ".")
}

// wanted is the word for a Go type that a reader of JSON knows.
func wanted(kind string) string {
	switch kind {
	case "int", "int64":
		return "a whole number"
	case "bool":
		return "true or false"
	case "string":
		return "a string"
	}
	return "an object"
}

// checkFields walks through one JSON object.
func checkFields(text []byte, fields []string) error {
	d := json.NewDecoder(bytes.NewReader(text))
	d.UseNumber()
	if first, err := d.Token(); err != nil || first != json.Delim('{') {
		return badf("the body is not a JSON object: want {…}")
	}
	if err := walkObject(d, fields); err != nil {
		return err
	}
	if _, err := d.Token(); !errors.Is(err, io.EOF) {
		return badf("there is more behind the JSON object: want one object")
	}
	return nil
}

// walkObject reads an object of which the opening brace was read.
func walkObject(d *json.Decoder, fields []string) error {
	var seen []string
	for d.More() {
		key, err := d.Token()
		if err != nil {
			return badf("the body is not JSON: %v", err)
		}
		name := fmt.Sprint(key)
		switch {
		case !slices.Contains(fields, name):
			return badf("unknown field %q: want some of %q", clip(name), fields)
		case slices.Contains(seen, name):
			return badf("the field %q is given twice", name)
		}
		seen = append(seen, name)
		value, err := d.Token()
		switch {
		case err != nil:
			return badf("the body is not JSON: %v", err)
		case value == json.Delim('['):
			return badf("%q is a list: no field takes one", name)
		case value == json.Delim('{'):
			if err := walkObject(d, fields); err != nil {
				return err
			}
		}
	}
	if _, err := d.Token(); err != nil {
		return badf("the body is not JSON: %v", err)
	}
	return nil
}

// clip shortens what somebody sent before it goes into a text.
func clip(s string) string {
	const most = 64
	if len(s) <= most {
		return s
	}
	return string(bytes.ToValidUTF8([]byte(s[:most]), nil)) + "…"
}
