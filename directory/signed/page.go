package signed

import (
	"cmp"
	"errors"
	"fmt"
	"strconv"

	"github.com/go-json-experiment/json"
	"github.com/spiffe/go-spiffe/v2/spiffeid"

	"github.com/roster-mesh/roster/directory"
	"github.com/roster-mesh/roster/directory/strictjson"
)

// A Page is the payload of a page: a run of a stream's digests (rule G1).
// It claims that every entry of the stream whose latest announced change, as of
// revision At, lies in (From, To] is listed.
// docs/compatibility.md says how members are added: by a new format, or in ext.
type Page struct {
	Format       uint // 0 is 1; a writer takes one that its build reads
	Issuer       spiffeid.TrustDomain
	Epoch        uint64
	Audience     directory.Audience
	From, To, At uint64
	IssuedAt     int64 // Unix seconds
	Digests      []Digest
	Extension    Extension
}

// Payload returns the one encoding of p.
func (p *Page) Payload() []byte {
	return append(p.Extension.Append(p.listed()), '}')
}

// listed returns the members that the format lists, without a closing brace.
func (p *Page) listed() []byte {
	format := cmp.Or(p.Format, 1)

	data := strictjson.AppendUint([]byte{'{'}, "v", uint64(format))
	data = strictjson.AppendText(data, "iss", p.Issuer.IDString())
	data = strictjson.AppendUint(data, "epoch", p.Epoch)
	data = strictjson.AppendText(data, "aud", p.Audience.String())
	data = strictjson.AppendUint(data, "from", p.From)
	data = strictjson.AppendUint(data, "to", p.To)
	data = strictjson.AppendUint(data, "at", p.At)
	data = strconv.AppendInt(strictjson.AppendName(data, "iat"), p.IssuedAt, 10)
	data = AppendDigests(strictjson.AppendName(data, "d"), p.Digests)

	return appendLaterMembers(data, format)
}

var (
	errPage = errors.New("not a canonical page")
	errHead = errors.New("not a canonical head")
)

// ParsePage is Dialect.ParsePage with the dialect of this build.
func ParsePage(payload []byte) (*Page, error) { return OwnDialect().ParsePage(payload) }

// ParsePage reads a page's payload and refuses any bytes that no writer makes,
// ranges that are empty or beyond At, and digests out of order or range. With an error that is
// ErrUnsupported comes a page that has its Format, Issuer and Epoch alone.
func (d Dialect) ParsePage(payload []byte) (*Page, error) {
	head, err := d.readPreamble(StructurePage, payload)

	bare := &Page{Format: head.format, Issuer: head.issuer, Epoch: head.epoch}

	// The caller can still check the origin and the signature, because all formats have the same preamble.
	if errors.Is(err, ErrUnsupported) {
		return bare, err
	}

	if err != nil {
		return nil, err
	}

	in := scan{rest: payload[head.size:]}

	audience, err := directory.ParseAudience(in.between(`,"aud":"`))
	if err != nil {
		return nil, fmt.Errorf("%w: %w", errPage, err)
	}

	page := &Page{
		Format: head.format, Issuer: head.issuer, Epoch: head.epoch, Audience: audience,
		From: in.member(`,"from":`), To: in.member(`,"to":`), At: in.member(`,"at":`),
		IssuedAt: int64(in.member(`,"iat":`)), Digests: in.listed(`,"d":[`),
	}
	if in.bad {
		return nil, fmt.Errorf("%w: %w", errPage, errListed)
	}

	// The scan accepts several encodings of a value; the writer has one.
	if page.Extension, err = ExtensionBehind(page.listed(), payload); err != nil {
		return nil, fmt.Errorf("%w: %w", errPage, err)
	}

	if err := page.validate(); err != nil {
		return nil, err
	}

	// It is judged last, so that a malformed page is the sender's fault in any dialect.
	if err := d.Supports(StructurePage, page.Format, page.Extension); err != nil {
		return bare, err
	}

	return page, nil
}

// validate refuses ranges that are empty or beyond At, and digests out of order or range.
func (p *Page) validate() error {
	if p.From >= p.To || p.To > p.At {
		return fmt.Errorf("%w: its range is empty or beyond its revision", errPage)
	}

	last := p.From
	for _, digest := range p.Digests {
		if digest.Revision <= last || digest.Revision > p.To {
			return fmt.Errorf("%w: a digest is out of its range or order", errPage)
		}

		last = digest.Revision
	}

	return nil
}

// A Head is the payload of a signed word on where an origin is (rule G5).
type Head struct {
	Format    uint // 0 is 1; a writer takes one that its build reads
	Issuer    spiffeid.TrustDomain
	Epoch     uint64
	Tip       uint64 // the highest revision ever announced in the mesh stream
	At        uint64 // the revision applied
	Size      uint64 // of the ledger, as Root
	Root      directory.Hash
	Keys      directory.Hash // of the key document's payload
	IssuedAt  int64          // Unix seconds
	Extension Extension
}

// Payload returns the one encoding of h.
func (h *Head) Payload() []byte {
	return append(h.Extension.Append(h.listed()), '}')
}

// listed returns the members that the format lists, without a closing brace.
func (h *Head) listed() []byte {
	format := cmp.Or(h.Format, 1)

	data := strictjson.AppendUint([]byte{'{'}, "v", uint64(format))
	data = strictjson.AppendText(data, "iss", h.Issuer.IDString())
	data = strictjson.AppendUint(data, "epoch", h.Epoch)
	data = strictjson.AppendUint(data, "tip", h.Tip)
	data = strictjson.AppendUint(data, "at", h.At)
	data = strictjson.AppendUint(data, "size", h.Size)
	data = strictjson.AppendText(data, "root", h.Root.String())
	data = strictjson.AppendText(data, "keys", h.Keys.String())
	data = strconv.AppendInt(strictjson.AppendName(data, "iat"), h.IssuedAt, 10)

	return appendLaterMembers(data, format)
}

// ParseHead reads a head's payload and refuses any bytes that no writer makes.
// With an error that is ErrUnsupported comes a head that has its Format, Issuer
// and Epoch alone.
func (d Dialect) ParseHead(payload []byte) (*Head, error) {
	head, err := d.readPreamble(StructureHead, payload)

	bare := &Head{Format: head.format, Issuer: head.issuer, Epoch: head.epoch}
	if errors.Is(err, ErrUnsupported) {
		return bare, err
	}

	if err != nil {
		return nil, err
	}

	var w struct {
		Tip  uint64         `json:"tip"`
		At   uint64         `json:"at"`
		Size uint64         `json:"size"`
		Root directory.Hash `json:"root"`
		Keys directory.Hash `json:"keys"`
		Iat  int64          `json:"iat"`
	}
	if err := json.Unmarshal(payload, &w); err != nil {
		return nil, fmt.Errorf("%w: %w", errHead, err)
	}

	h := &Head{
		Format: head.format, Issuer: head.issuer, Epoch: head.epoch,
		Tip: w.Tip, At: w.At, Size: w.Size, Root: w.Root, Keys: w.Keys, IssuedAt: w.Iat,
	}
	if h.Extension, err = ExtensionBehind(h.listed(), payload); err != nil {
		return nil, fmt.Errorf("%w: %w", errHead, err)
	}

	if h.Tip > h.At {
		return nil, errHead
	}

	// It is judged last, so that a malformed head is the sender's fault in any dialect.
	if err := d.Supports(StructureHead, h.Format, h.Extension); err != nil {
		return bare, err
	}

	return h, nil
}
