package trust

import (
	"bytes"
	"errors"
	"fmt"
	"time"

	"github.com/go-json-experiment/json"
	"github.com/go-json-experiment/json/jsontext"

	"github.com/roster-mesh/roster/directory"
	"github.com/roster-mesh/roster/directory/signed"
	"github.com/roster-mesh/roster/directory/strictjson"
)

const (
	// MaxProof bounds a proof file in bytes.
	MaxProof = 4 << 20
	// MaxStaple bounds a proof file that travels with its agent, in bytes.
	MaxStaple = 6 << 10
	// StapleLifetime is how long a staple is fresh after its page was signed.
	StapleLifetime = 30 * time.Minute
)

// A Proof holds all that is needed to check one record offline (trust.md, "What an
// auditor gets"). Without Checkpoint, Index and Path it proves origin and freshness
// only, not that the record is logged.
type Proof struct {
	Record string         `json:"record"`           // SD-JWT
	Page   string         `json:"page"`             // compact JWS of a page that lists the record
	Keys   string         `json:"keys,omitempty"`   // compact JWS of the origin's key document
	Bundle jsontext.Value `json:"bundle,omitempty"` // the origin's SPIFFE bundle, a JWKS object
	// Attestation takes the place of Keys and Bundle in a staple: a compact JWS in which an
	// SVID vouches for the one key that signed record and page.
	Attestation string `json:"attestation,omitempty"`

	Checkpoint string           `json:"checkpoint,omitempty"` // a C2SP checkpoint
	Index      *uint64          `json:"index,omitempty"`      // of the statement's leaf
	Path       []directory.Hash `json:"path,omitempty"`       // from the leaf's sibling upwards

	// Ext holds the members of later releases. No signature covers it, so Verify reports
	// it as unchecked. Crit names those members of Ext without which the file must not
	// be judged; this release knows none.
	Ext  jsontext.Value `json:"ext,omitempty"`
	Crit []string       `json:"crit,omitempty"`
}

// Bytes returns the proof file.
func (p *Proof) Bytes() []byte { return encodeFile(p) }

// encodeFile returns a proof or an evidence file as people read it.
func encodeFile(file any) []byte {
	data, err := json.Marshal(file, jsontext.Multiline(true))
	if err != nil {
		panic(err) // only for a raw member that isn't JSON; no writer here makes one
	}

	return append(data, '\n')
}

// encodeCompact is encodeFile without white space. Strings are read as UTF-8 and raw
// members as JSON, so it doesn't fail for a parsed file.
func encodeCompact(file any) []byte {
	data, err := json.Marshal(file)
	if err != nil {
		panic(err)
	}

	return data
}

// ParseProof reads a proof file strictly: no duplicate and no unknown members, and the
// members of the inclusion proof all or none. Verify checks their contents. The error is
// ErrFormat, or signed.ErrUnsupported if Crit names anything, because this release knows
// no name.
func ParseProof(data []byte) (*Proof, error) {
	if len(data) > MaxProof {
		return nil, fmt.Errorf("%w: over %d bytes", ErrFormat, MaxProof)
	}

	proof := new(Proof)
	if err := strictjson.Unmarshal(data, proof, json.RejectUnknownMembers(true)); err != nil {
		return nil, fmt.Errorf("%w: not a proof file: %w", ErrFormat, err)
	}

	if proof.Record == "" || proof.Page == "" || (proof.Keys == "") == (proof.Attestation == "") {
		return nil, fmt.Errorf("%w: a proof file has a record, a page, and either keys or an attestation", ErrFormat)
	}

	// The decoder keeps null as raw text, and it means that there is no bundle.
	if bytes.Equal(proof.Bundle, []byte("null")) {
		proof.Bundle = nil
	}

	if proof.Attestation != "" && proof.Bundle != nil {
		return nil, fmt.Errorf("%w: a proof file with an attestation has no bundle", ErrFormat)
	}

	if logged := proof.Checkpoint != ""; logged != (proof.Index != nil) || !logged && proof.Path != nil {
		return nil, fmt.Errorf("%w: checkpoint, index and path come together", ErrFormat)
	}

	if err := checkExtensions(proof.Ext, proof.Crit); err != nil {
		return nil, err
	}

	return proof, nil
}

// checkExtensions checks the form of ext and crit, which is that of signed structures,
// and refuses every name in crit.
func checkExtensions(ext jsontext.Value, crit []string) error {
	if ext == nil && crit == nil {
		return nil
	}

	if _, err := signed.NewExtension(ext, crit...); err != nil {
		return fmt.Errorf("%w: %w", ErrFormat, err)
	}

	if crit == nil {
		return nil
	}

	// An empty crit would be a second encoding of a file without one.
	if len(crit) == 0 {
		return fmt.Errorf("%w: crit is empty", ErrFormat)
	}

	return fmt.Errorf("%w: crit of the proof file names %.64q", signed.ErrUnsupported, crit[0])
}

// malformed is why a part of a file can't be read: ErrFormat, unless it is of a format
// or has a critical extension that this release doesn't know.
func malformed(part string, err error) error {
	if errors.Is(err, signed.ErrUnsupported) {
		return fmt.Errorf("%s: %w", part, err)
	}

	return fmt.Errorf("%w: %s: %w", ErrFormat, part, err)
}

// Why a proof does not hold, besides signed.ErrSignature and signed.ErrUnsupported.
var (
	ErrFormat    = errors.New("malformed")
	ErrKey       = errors.New("not trusted")
	ErrInclusion = errors.New("inclusion in the ledger is not proven")
	ErrWitness   = errors.New("the policy's witnesses did not cosign")
	ErrExpired   = errors.New("expired")
)

// ExitCode returns the exit code of a command that ends with err (docs/cli.md,
// "Output"): 0 for none, 1 for an error of another package.
func ExitCode(err error) int {
	switch {
	case err == nil:
		return 0
	case errors.Is(err, ErrKeysForked), errors.Is(err, ErrEquivocation):
		return 11
	case errors.Is(err, ErrNoAnchor), errors.Is(err, ErrKey),
		errors.Is(err, signed.ErrKeyUnknown), errors.Is(err, signed.ErrKeyRevoked):
		return 12
	case errors.Is(err, ErrInclusion), errors.Is(err, ErrWitness):
		return 13
	case errors.Is(err, ErrExpired):
		return 14
	case errors.Is(err, ErrFormat), errors.Is(err, signed.ErrUnsupported),
		errors.Is(err, signed.ErrSignature), errors.Is(err, signed.ErrHeader):
		return 10
	}

	return 1
}
