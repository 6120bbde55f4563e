package main

import (
	"slices"
	"strings"

	"github.com/spf13/pflag"

	"holdfast/server/tlsfiles"
)

// tlsSettings are the settings of serve for who may talk to it, and how.
type tlsSettings struct {
	cert, key, ca string
	// tokens is a file, certNames a list with commas.
	tokens, certNames string
}

func (s *tlsSettings) register(fs *pflag.FlagSet) {
	fs.StringVar(&s.cert, "cert", "", "PEM `file` with the certificate that clients are shown; with --key, the port speaks TLS")
	fs.StringVar(&s.key, "key", "", "PEM `file` with the key of --cert")
	fs.StringVar(&s.ca, "ca", "", "PEM `file` with CA certificates: clients must show a certificate that one of them signed")
	fs.StringVar(&s.tokens, tokenFileFlag, "", "`file` with lines NAME:TOKEN: who shows one of the tokens is an operator (default: whoever is on this machine)")
	fs.StringVar(&s.certNames, "operator-cert-name", "", "`name,…` in the certificates of clients that are operators; needs --ca")
}

// files are the names of the port's files; the zero value without TLS.
func (s *tlsSettings) files() tlsfiles.Files {
	return tlsfiles.Files{Cert: s.cert, Key: s.key, CA: s.ca}
}

// check refuses settings that are each allowed, but not together.
func (s *tlsSettings) check() error {
	switch {
	case s.cert != "" && s.key == "":
		return usagef("--cert is given without --key: give both, or neither")
	case s.cert == "" && s.key != "":
		return usagef("--key is given without --cert: give both, or neither")
	case s.ca != "" && s.cert == "":
		return usagef("--ca is given without --cert and --key: clients can show certificates only to a port that speaks TLS; give all three")
	case s.ca == tlsfiles.SystemCA:
		return usagef("--ca %s: whoever has a certificate of any public authority would be let in: want the file of your own CA", s.ca)
	}
	if s.certNames == "" {
		return nil
	}
	if s.ca == "" {
		return usagef("--operator-cert-name is given without --ca: clients show no certificates then; give --cert, --key and --ca, too")
	}
	if slices.Contains(s.operatorNames(), "") {
		return usagef("--operator-cert-name %q has an empty part: want NAME, or several separated by commas", s.certNames)
	}
	return nil
}

// operatorNames are the parts of --operator-cert-name.
func (s *tlsSettings) operatorNames() []string {
	if s.certNames == "" {
		return nil
	}
	names := strings.Split(s.certNames, ",")
	for i := range names {
		names[i] = strings.TrimSpace(names[i])
	}
	return names
}
