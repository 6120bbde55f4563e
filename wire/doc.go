// Package wire is the protobuf API of the lock service and its mapping to Go:
// errors ([Error], [FromError]), tokens and grants ([Grant], [FromGrant]), the
// strict JSON codec ([Options]), and the limits that both ends share. Client
// and server meet only here.
//
// The API itself is wire/holdfast/v1/holdfast.proto; package holdfastv1 and
// its connect code are generated from it. Package wire imports fence, driver
// and nothing else of ours: it knows no state and decides nothing. Start
// reading at the proto file, then at [Error].
package wire
