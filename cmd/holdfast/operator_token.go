package main

import (
	"bytes"
	"fmt"
	"io"
	"os"
	"strings"

	"github.com/spf13/cobra"

	"holdfast/driver"
)

const tokenFileFlag = "operator-token-file"

// operatorFlag adds --operator-token-file to an operator's command and, below
// it, to its children.
func operatorFlag(cmd *cobra.Command) {
	cmd.PersistentFlags().String(tokenFileFlag, "", "`file` with an operator's token, or with NAME:TOKEN, if the service wants one (default $"+environmentName(tokenFileFlag)+")")
}

// operatorToken is the token of an operator's command; "" for any other, and
// if none is given.
func operatorToken(cmd *cobra.Command) (string, error) {
	if cmd.Flag(tokenFileFlag) == nil {
		return "", nil
	}
	path := flagOrVariable(cmd, tokenFileFlag)
	if path == "" {
		return "", nil
	}
	token, err := readToken(path)
	if err != nil {
		return "", usagef("--%s: %w", tokenFileFlag, err)
	}
	return token, nil
}

// readToken reads the one token of a file. Errors never show it.
func readToken(path string) (string, error) {
	f, err := os.Open(path)
	if err != nil {
		return "", err
	}
	defer f.Close()
	data, err := io.ReadAll(io.LimitReader(f, 64<<10))
	if err != nil {
		return "", err
	}
	var token string
	for line := range bytes.Lines(data) {
		text := strings.TrimSpace(string(line))
		switch {
		case text == "" || text[0] == '#':
			continue
		case token != "":
			return "", fmt.Errorf("%s holds several tokens: want a file with the one that is to be shown", path)
		}
		token = text
		if _, after, named := strings.Cut(text, ":"); named {
			token = strings.TrimSpace(after)
		}
	}
	if token == "" {
		return "", fmt.Errorf("%s holds no token: want a line TOKEN or NAME:TOKEN", path)
	}
	return token, nil
}

// asOperator says what an operator's command can do about a call that was
// denied.
func asOperator(cmd *cobra.Command, err error) error {
	if err == nil || cmd.Flag(tokenFileFlag) == nil || driver.KindOf(err) != driver.Denied {
		return err
	}
	return fmt.Errorf("%w; a credential is given with --%s, or with --cert and --key", err, tokenFileFlag)
}
