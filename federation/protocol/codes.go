package protocol

import (
	"errors"

	"github.com/spiffe/go-spiffe/v2/spiffeid"
)

// A Code is the result of one message: one for each check of the gate (rule G6) and for each
// result of its acceptance (rule G3). Mesh.Peers returns counts by code.
type Code string

// The codes, in the order of the checks.
const (
	CodeFormat        Code = "format"         // size, or not a canonical compact JWS
	CodeRate          Code = "rate"           // the sender or the origin exceeds its rate
	CodeHeader        Code = "header"         // not exactly alg, typ and kid
	CodeJSON          Code = "json"           // not the canonical payload of its type
	CodeOriginUnknown Code = "origin_unknown" // not an active peer, or a stream that isn't followed
	CodeKeyUnknown    Code = "key_unknown"    // not in the newest key document
	CodeKeyRevoked    Code = "key_revoked"
	CodeSignature     Code = "signature"
	CodeDistrusted    Code = "distrusted"  // of a node that other nodes of its domain contradict
	CodeUnsupported   Code = "unsupported" // of a format, or with a critical extension, of a later release
	CodeEpochOld      Code = "epoch_old"   // of an epoch before the one that is followed
	CodeFuture        Code = "future"      // issued over a minute from now
	CodeOld           Code = "old"         // nothing new: ignored, never punished
	CodeGap           Code = "gap"         // begins above the watermark; missing pages are pulled
	CodeApplied       Code = "applied"
	CodeRecord        Code = "record" // a record that does not match its name
	CodeQuota         Code = "quota"  // a record or an entry that has no room: left out

	// CodeOwnerForeign is for a record that names an identity of the receiver's domain.
	CodeOwnerForeign Code = "owner_foreign"

	// CodeEquivocation is for a structure that contradicts an earlier one of the origin.
	CodeEquivocation Code = "equivocation"
)

// A Refusal is the error of a message that was not accepted and changed nothing.
type Refusal struct {
	Code   Code
	Origin spiffeid.TrustDomain // zero if the check failed before a known origin was read
	Err    error
}

func (r *Refusal) Error() string { return string(r.Code) + ": " + r.Err.Error() }

func (r *Refusal) Unwrap() error { return r.Err }

// CodeOf returns the code that err carries, or "" for an error that is no
// refusal.
func CodeOf(err error) Code {
	if r, ok := errors.AsType[*Refusal](err); ok {
		return r.Code
	}

	return ""
}
