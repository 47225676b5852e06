package federation

import (
	"errors"
	"fmt"
	"strings"

	"github.com/go-json-experiment/json"
	"github.com/roster-mesh/roster/directory"
	"github.com/spiffe/go-spiffe/v2/spiffeid"
)

// A Code is what became of one message: one word for each check of the gate
// (rule G6), and for what follows it (rule G3). Peers reports counts by code.
type Code string

// The codes, in the order in which they are found.
const (
	CodeFormat        Code = "format"         // size, or not a canonical compact JWS
	CodeRate          Code = "rate"           // its sender sends too much
	CodeHeader        Code = "header"         // not exactly alg, typ and kid
	CodeJSON          Code = "json"           // not the canonical payload of its type
	CodeOriginUnknown Code = "origin_unknown" // not an active peer, or a stream that isn't followed
	CodeKeyUnknown    Code = "key_unknown"    // not in the newest key document
	CodeKeyRevoked    Code = "key_revoked"
	CodeSignature     Code = "signature"
	CodeUnsupported   Code = "unsupported" // of a format, or with a critical extension, of a later release
	CodeQuota         Code = "quota"       // the origin announces too much
	CodeEpochOld      Code = "epoch_old"   // of an epoch before the one that is followed
	CodeFuture        Code = "future"      // issued over a minute from now
	CodeOld           Code = "old"         // nothing new: ignored, never punished
	CodeGap           Code = "gap"         // something lies between: pulled
	CodeApplied       Code = "applied"
	CodeRecord        Code = "record" // a record that is not what its name says

	// CodeOwnerForeign is of a record that names an identity of the receiver's domain.
	CodeOwnerForeign Code = "owner_foreign"

	// CodeEquivocation is of what contradicts something that the origin signed before.
	CodeEquivocation Code = "equivocation"
)

// The bounds of messages, in bytes and in items.
const (
	MaxPage        = 1 << 20 // of a page that was pulled
	maxKeys        = 1 << 20
	maxDigests     = 1000 // in one page
	maxNames       = 1000 // in one question for records
	maxRecordsBody = maxNames*100 + 1024
	maxAnswer      = 8 << 20 // of records in one answer; what is left out is asked for again
)

// A Refusal says why a message was not accepted. Nothing was changed by it.
type Refusal struct {
	Code   Code
	Origin spiffeid.TrustDomain // zero where the message doesn't get so far as to name one that is known
	Err    error
}

func (r *Refusal) Error() string { return string(r.Code) + ": " + r.Err.Error() }

func (r *Refusal) Unwrap() error { return r.Err }

// codeOf returns the code that err carries, or "" for an error that is no
// refusal.
func codeOf(err error) Code {
	var r *Refusal
	if errors.As(err, &r) {
		return r.Code
	}
	return ""
}

var errJWS = errors.New("not a canonical compact JWS")

// A jws is a compact JWS taken apart, nothing of it verified.
type jws struct{ header, payload []byte }

// joinJWS makes a compact JWS of its parts, of which the payload alone is not encoded yet.
func joinJWS(header string, payload []byte, signature string) string {
	b := make([]byte, 0, len(header)+directory.B64.EncodedLen(len(payload))+len(signature)+2)
	b = directory.B64.AppendEncode(append(append(b, header...), '.'), payload)
	return string(append(append(b, '.'), signature...))
}

// splitJWS takes a compact JWS apart: base64url without padding, spare bits or
// white space, and a signature of Ed25519's size.
func splitJWS(text string) (jws, error) {
	parts := strings.Split(text, ".")
	if len(parts) != 3 {
		return jws{}, errJWS
	}
	header, err1 := directory.B64.DecodeString(parts[0])
	payload, err2 := directory.B64.DecodeString(parts[1])
	signature, err3 := directory.B64.DecodeString(parts[2])
	if err := errors.Join(err1, err2, err3); err != nil || len(signature) != 64 {
		return jws{}, errJWS
	}
	size := directory.B64.EncodedLen
	if size(len(header))+size(len(payload))+size(len(signature))+2 != len(text) { // the decoder skips line ends
		return jws{}, errJWS
	}
	return jws{header, payload}, nil
}

// kidOf returns the key that a header names, "" for none.
func kidOf(header []byte) string {
	var h struct {
		Kid string `json:"kid"`
	}
	_ = json.Unmarshal(header, &h) // what is no header names none
	return h.Kid
}

// checkHeader demands exactly {alg: EdDSA, typ, kid}, without white space or escapes:
// a record's header is in no hash that names the record, and whoever passes one on
// could else make it as large as they like.
func checkHeader(header []byte, typ string) error {
	var h struct {
		Alg string `json:"alg"`
		Typ string `json:"typ"`
		Kid string `json:"kid"`
	}
	if err := json.Unmarshal(header, &h, json.RejectUnknownMembers(true)); err != nil {
		return fmt.Errorf("%w: %w", directory.ErrHeader, err)
	}
	_, err := directory.ParseHash(h.Kid)
	if h.Alg != "EdDSA" || h.Typ != typ || err != nil || len(header) != len(`{"alg":"EdDSA","kid":"","typ":""}`)+len(h.Kid)+len(typ) {
		return directory.ErrHeader
	}
	return nil
}

// A name is what records are asked for by: the hash of the statement and that
// of the disclosures.
type name struct{ h, m directory.Hash }

func nameOf(d directory.Digest) name { return name{d.H, d.M} }

// bytes is the name as a key on disk.
func (n name) bytes() []byte { return append(n.h[:], n.m[:]...) }

// A namesRequest is the body of POST /federation/v1/records.
type namesRequest struct {
	Origin string              `json:"origin"`
	Names  [][2]directory.Hash `json:"names"`
}

func (r namesRequest) bytes() []byte {
	b := directory.AppendText([]byte{'{'}, "origin", r.Origin)
	list := []byte{'['}
	for i, n := range r.Names {
		if i > 0 {
			list = append(list, ',')
		}
		list = append(directory.AppendString(append(list, '['), n[0].String()), ',')
		list = append(directory.AppendString(list, n[1].String()), ']')
	}
	return append(directory.AppendRaw(b, "names", append(list, ']')), '}')
}

// A recordLine is one line of the answer to it.
type recordLine struct {
	H      directory.Hash `json:"h"`
	M      directory.Hash `json:"m"`
	Record string         `json:"record"`
	Error  string         `json:"error"`
}

func (l recordLine) bytes() []byte {
	b := directory.AppendText([]byte{'{'}, "h", l.H.String())
	b = directory.AppendText(b, "m", l.M.String())
	if l.Error != "" {
		b = directory.AppendText(b, "error", l.Error)
	} else {
		b = directory.AppendText(b, "record", l.Record)
	}
	return append(b, '}', '\n')
}

// A gossiped message is one byte that says what it is, and a JWS.
const (
	gossipPage = 'p'
	gossipHead = 'h'
)
