package publish

import (
	"cmp"
	"crypto/ed25519"
	"crypto/sha256"
	"fmt"
	"slices"
	"sync"
	"testing"
	"time"

	"github.com/spiffe/go-spiffe/v2/spiffeid"

	"github.com/roster-mesh/roster/directory"
	"github.com/roster-mesh/roster/directory/directorytest"
	"github.com/roster-mesh/roster/directory/signed"
	"github.com/roster-mesh/roster/federation/protocol"
)

var (
	must         = directorytest.Must
	alpha        = directorytest.Alpha
	privateOfOne = directory.Only(directorytest.Beta)
)

// A domain is the committed state of a domain with one node, and that node's key.
type domain struct {
	mu      sync.Mutex
	at      directory.Position
	streams map[directory.Audience][]signed.Digest
	doc     *signed.KeyDocument
	formats map[signed.Structure]uint
	changed chan struct{}
	readers map[spiffeid.TrustDomain]*signed.KeyDocument
	private ed25519.PrivateKey
	made    map[string]int // signatures, by the type of what was signed

	// moves is called after each reading of the position; nil does nothing.
	moves func()
	// signing is called before a signature; nil does nothing.
	signing func(typ string) error
}

// newDomain returns a domain whose key document lists its node's key.
func newDomain(t *testing.T) (*domain, *Publisher) {
	t.Helper()

	d := &domain{at: directory.Position{Epoch: 5}, streams: map[directory.Audience][]signed.Digest{},
		formats: map[signed.Structure]uint{}, changed: make(chan struct{}), made: map[string]int{},
		readers: map[spiffeid.TrustDomain]*signed.KeyDocument{}}
	d.rotate()
	d.issue()

	formats := signed.Formats{signed.StructurePage: {1, 2, 3}, signed.StructureHead: {1, 2}}

	return d, New(alpha, d, d, signed.Dialect{Formats: formats}, nil)
}

// rotate gives the node another key, which no key document lists yet.
func (d *domain) rotate() {
	d.mu.Lock()
	defer d.mu.Unlock()

	_, d.private, _ = ed25519.GenerateKey(nil)
}

// issue issues another key document, which lists the node's key.
func (d *domain) issue() {
	d.mu.Lock()
	defer d.mu.Unlock()

	seq := uint64(1)
	if d.doc != nil {
		seq = d.doc.Seq + 1
	}

	d.doc = &signed.KeyDocument{Issuer: alpha, Epoch: d.at.Epoch, Seq: seq, Expires: time.Now().Unix() + 3600,
		Keys: []signed.SigningKey{{Public: d.private.Public().(ed25519.PublicKey)}}}
	d.moveOn()
}

// moveOn tells who waits that the domain has changed. d.mu is held.
func (d *domain) moveOn() {
	close(d.changed)
	d.changed = make(chan struct{})
}

// announce announces a change of a registration to a stream, and returns the name of its record.
func (d *domain) announce(aud directory.Audience, n byte, op signed.Op) protocol.RecordName {
	d.mu.Lock()
	defer d.mu.Unlock()

	d.at.Revision++
	digest := signed.Digest{RID: directorytest.RID(n), Revision: d.at.Revision, Op: op}

	if digest.Live() {
		digest.H, digest.M, digest.Lifetime = directory.HashOf(statement(d.at.Revision)), directory.Hash{n}, 60
		digest.Deadline = time.Now().Unix() + 60
	}

	d.streams[aud] = append(slices.DeleteFunc(d.streams[aud], func(earlier signed.Digest) bool {
		return earlier.RID == digest.RID
	}), digest)
	d.moveOn()

	return protocol.NameOf(digest)
}

func statement(revision uint64) []byte { return fmt.Appendf(nil, "statement %d", revision) }

func (d *domain) Position() directory.Position {
	d.mu.Lock()
	at := d.at
	d.mu.Unlock()

	if d.moves != nil {
		d.moves()
	}

	return at
}

func (d *domain) Changed() <-chan struct{} {
	d.mu.Lock()
	defer d.mu.Unlock()

	return d.changed
}

func (d *domain) Digests(aud directory.Audience, since uint64, limit int) (ds []signed.Digest, to, at uint64) {
	d.mu.Lock()
	defer d.mu.Unlock()

	for _, digest := range d.streams[aud] {
		if digest.Revision > since {
			ds = append(ds, digest)
		}
	}

	if len(ds) > limit {
		return ds[:limit], ds[limit-1].Revision, d.at.Revision
	}

	return ds, d.at.Revision, d.at.Revision
}

func (d *domain) Tip(aud directory.Audience) uint64 {
	d.mu.Lock()
	defer d.mu.Unlock()

	if n := len(d.streams[aud]); n > 0 {
		return d.streams[aud][n-1].Revision
	}

	return 0
}

func (d *domain) Record(aud directory.Audience, h, m directory.Hash) ([]byte, []string, bool) {
	d.mu.Lock()
	defer d.mu.Unlock()

	for _, digest := range d.streams[aud] {
		if digest.Live() && digest.H == h && digest.M == m {
			return statement(digest.Revision), []string{aud.String()}, true
		}
	}

	return nil, nil, false
}

func (d *domain) Current(directory.RID, directory.Audience) (signed.Digest, bool) {
	return signed.Digest{}, false
}

func (d *domain) KeyDocument() *signed.KeyDocument {
	d.mu.Lock()
	defer d.mu.Unlock()

	return d.doc
}

func (d *domain) Ledger() (uint64, directory.Hash) { return 7, directory.Hash(sha256.Sum256(nil)) }

func (d *domain) Format(structure signed.Structure) uint { return cmp.Or(d.formats[structure], 1) }

func (d *domain) IsLeader() bool { return true }

func (d *domain) Sign(typ string, payload []byte) (string, error) {
	if d.signing != nil {
		if err := d.signing(typ); err != nil {
			return "", err
		}
	}

	d.mu.Lock()
	defer d.mu.Unlock()

	d.made[typ]++

	header := `{"alg":"EdDSA","typ":"` + typ + `","kid":"` + signed.KeyID(d.private.Public().(ed25519.PublicKey)) + `"}`
	text := directory.B64.EncodeToString([]byte(header)) + "." + directory.B64.EncodeToString(payload)

	return text + "." + directory.B64.EncodeToString(ed25519.Sign(d.private, []byte(text))), nil
}

func (d *domain) Keys(origin spiffeid.TrustDomain) (*signed.KeyDocument, string, bool) {
	doc, known := d.readers[origin]
	return doc, "", known
}

// signatures returns how many records were signed.
func (d *domain) signatures() int {
	d.mu.Lock()
	defer d.mu.Unlock()

	return d.made[signed.TypeRecord]
}

// isListed reports whether the key that signed a JWS is in the key document, and signed it.
func (d *domain) isListed(text string) bool {
	parts, err := protocol.SplitJWS(text)
	if err != nil {
		return false
	}

	key, err := d.KeyDocument().Key(protocol.KeyIDOf(parts.Header))
	if err != nil {
		return false
	}

	dot := len(text) - directory.B64.EncodedLen(ed25519.SignatureSize)
	signature, err := directory.B64.DecodeString(text[dot:])

	return err == nil && ed25519.Verify(key.Public, []byte(text[:dot-1]), signature)
}
