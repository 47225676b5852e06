package trust

import (
	"bytes"
	"errors"
	"fmt"

	"github.com/go-json-experiment/json"
	"github.com/go-json-experiment/json/jsontext"

	"github.com/roster-mesh/roster/directory"
)

// MaxProof bounds a proof file in bytes.
const MaxProof = 4 << 20

// A Proof holds all that is needed to check one record offline (trust.md, "What
// an auditor gets"). Without Checkpoint, Index and Path it proves origin and
// freshness, and that the record is logged not at all.
type Proof struct {
	Record string         `json:"record"`           // SD-JWT
	Page   string         `json:"page"`             // compact JWS of a page that lists the record
	Keys   string         `json:"keys"`             // compact JWS of the origin's key document
	Bundle jsontext.Value `json:"bundle,omitempty"` // the origin's SPIFFE bundle, a JWKS object

	Checkpoint string           `json:"checkpoint,omitempty"` // a C2SP checkpoint
	Index      *uint64          `json:"index,omitempty"`      // of the statement's leaf
	Path       []directory.Hash `json:"path,omitempty"`       // from the leaf's sibling upwards
}

// Bytes returns the proof file.
func (p *Proof) Bytes() []byte {
	b, err := json.Marshal(p, jsontext.Multiline(true))
	if err != nil {
		panic(err) // only a Bundle that isn't JSON; Bundles takes none
	}
	return append(b, '\n')
}

// ParseProof reads a proof file strictly: no name twice, none that is unknown,
// the members of the inclusion proof all or none. What they hold is for Verify
// to check. The error is ErrFormat.
func ParseProof(b []byte) (*Proof, error) {
	if len(b) > MaxProof {
		return nil, fmt.Errorf("%w: over %d bytes", ErrFormat, MaxProof)
	}
	p := new(Proof)
	if err := json.Unmarshal(b, p, json.RejectUnknownMembers(true)); err != nil {
		return nil, fmt.Errorf("%w: not a proof file: %w", ErrFormat, err)
	}
	if p.Record == "" || p.Page == "" || p.Keys == "" {
		return nil, fmt.Errorf("%w: a proof file has a record, a page and keys", ErrFormat)
	}
	if bytes.Equal(p.Bundle, []byte("null")) {
		p.Bundle = nil
	}
	if logged := p.Checkpoint != ""; logged != (p.Index != nil) || !logged && p.Path != nil {
		return nil, fmt.Errorf("%w: checkpoint, index and path come together", ErrFormat)
	}
	return p, nil
}

// Why a proof does not hold; what a signature lacks is directory.ErrSignature.
var (
	ErrFormat    = errors.New("not in the form that it must have")
	ErrKey       = errors.New("the key is not one to believe")
	ErrInclusion = errors.New("the ledger is not shown to hold it")
	ErrExpired   = errors.New("its deadline has passed")
)

// ExitCode returns the exit code of a command that ends with err (operations.md,
// "The command line"): 0 for none, 1 for an error of another package.
func ExitCode(err error) int {
	switch {
	case err == nil:
		return 0
	case errors.Is(err, ErrKeysForked), errors.Is(err, ErrEquivocation):
		return 11
	case errors.Is(err, ErrKey), errors.Is(err, directory.ErrKeyUnknown), errors.Is(err, directory.ErrKeyRevoked):
		return 12
	case errors.Is(err, ErrInclusion):
		return 13
	case errors.Is(err, ErrExpired):
		return 14
	case errors.Is(err, ErrFormat), errors.Is(err, directory.ErrSignature), errors.Is(err, directory.ErrHeader):
		return 10
	}
	return 1
}
