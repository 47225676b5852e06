package signed

import (
	"errors"
	"fmt"
	"slices"

	"github.com/go-json-experiment/json/jsontext"
	"github.com/spiffe/go-spiffe/v2/spiffeid"

	"github.com/roster-mesh/roster/directory/strictjson"
)

// A Dialect is the set of signed structures that a reader understands: the formats, and the
// names of ext that crit may name. The zero value reads format 1 of every structure and
// understands no critical extension.
type Dialect struct {
	Formats  Formats
	Critical []string
}

// OwnDialect returns the dialect of this build.
func OwnDialect() Dialect {
	return Dialect{Formats: ReadableFormats(), Critical: criticalExtensions}
}

// String returns the one text of d, by which a store remembers which dialect
// judged the bytes in it.
func (d Dialect) String() string {
	critical := slices.Sorted(slices.Values(d.Critical))

	data := AppendFormats([]byte(`{"formats":`), d.Formats.Normal())
	data = strictjson.AppendRaw(data, "critical", strictjson.AppendStrings(nil, slices.Compact(critical)))

	return string(append(data, '}'))
}

// Supports returns an *UnsupportedError if d does not understand a structure of
// that format with that extension.
func (d Dialect) Supports(structure Structure, format uint, extension Extension) error {
	if format > newestFormat || !d.Formats.Reads(structure, format) {
		return &UnsupportedError{Structure: structure, Format: format, Newest: d.Formats.Highest(structure)}
	}

	for _, name := range extension.Critical() {
		if !slices.Contains(d.Critical, name) {
			return &UnsupportedError{Structure: structure, Format: format, Critical: name}
		}
	}

	return nil
}

// A preamble is the members of a page or head up to its epoch. They are the same in every
// format, so that the origin, the key and the signature can be checked before it is known
// whether the rest can be read.
type preamble struct {
	format uint
	issuer spiffeid.TrustDomain
	epoch  uint64
	size   int // bytes
}

// readPreamble reads the preamble of a page or head. An error that is
// ErrUnsupported comes with the preamble: d does not read that format, of which
// nothing is known but that it is one strict JSON object.
func (d Dialect) readPreamble(structure Structure, payload []byte) (preamble, error) {
	in := scan{rest: payload}
	in.text(`{"v":`)
	format := in.format()
	issuer := in.between(`,"iss":"`)
	epoch := in.member(`,"epoch":`)

	domain, err := spiffeid.TrustDomainFromString(issuer)
	if err != nil || in.bad || format == 0 {
		return preamble{}, fmt.Errorf("not a canonical %s", structure)
	}

	// The scan accepts several encodings of a number; the writer has one.
	written := strictjson.AppendUint([]byte{'{'}, "v", uint64(format))
	written = strictjson.AppendText(written, "iss", domain.IDString())

	written = strictjson.AppendUint(written, "epoch", epoch)
	if string(written) != string(payload[:len(payload)-len(in.rest)]) {
		return preamble{}, fmt.Errorf("not a canonical %s", structure)
	}

	read := preamble{format: format, issuer: domain, epoch: epoch, size: len(written)}

	return read, d.readable(structure, format, payload)
}

// readable returns an *UnsupportedError if d does not read that format, and
// another error if payload is no strict JSON object in that format either.
func (d Dialect) readable(structure Structure, format uint, payload []byte) error {
	err := d.Supports(structure, format, Extension{})

	// Nothing else can be checked of an unknown format.
	if err != nil && (strictjson.IsDeeper(payload, strictjson.MaxDepth) || !jsontext.Value(payload).IsValid()) {
		return fmt.Errorf("a %s of format %d is not strict JSON", structure, format)
	}

	return err
}

// ErrUnsupported says that a structure is well formed as far as this release can check, and
// needs a newer one. The sender is not at fault. The error is an *UnsupportedError.
var ErrUnsupported = errors.New("a newer release is needed to read this")

// An UnsupportedError names the structure that a reader does not understand: the format, or an
// extension that is critical.
type UnsupportedError struct {
	Structure Structure
	Format    uint   // of the structure
	Newest    uint   // format that the reader understands; 0 if Critical is the reason
	Critical  string // name of ext; "" if the format is the reason
}

func (e *UnsupportedError) Error() string {
	if e.Critical != "" {
		return fmt.Sprintf("%s has the critical extension %.64q, which this release does not support: upgrade Roster",
			e.Structure, e.Critical)
	}

	return fmt.Sprintf("%s format %d is not supported; this release reads formats up to %d: upgrade Roster",
		e.Structure, e.Format, e.Newest)
}

// Is reports whether target is ErrUnsupported.
func (e *UnsupportedError) Is(target error) bool { return target == ErrUnsupported }
