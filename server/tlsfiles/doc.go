// Package tlsfiles turns names of PEM files into TLS settings, and keeps them
// up to date: a [Set] reads its files, reads them again when they change, and
// warns before they expire. A set takes effect as a whole or not at all: while
// a new certificate does not belong to the key beside it, or anything else is
// wrong, the old ones stay in use and the log says why.
//
// [Set.Server] is for a port that clients use, [Set.Client] for a command that
// talks to one, and [PeerTLS] for members among each other, where a certificate
// names its member. TLS 1.3 only; see docs/adr/0018.
//
// It imports nothing of this module. Start reading at [Open].
package tlsfiles
