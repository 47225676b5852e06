package trust

import (
	"crypto/sha256"
	"errors"
	"fmt"
	"sync"
	"time"

	"github.com/spiffe/go-spiffe/v2/spiffeid"

	"github.com/roster-mesh/roster/directory/checkpoint"
	"github.com/roster-mesh/roster/directory/signed"
	"github.com/roster-mesh/roster/trust/compact"
)

// Why a key document is not adopted, besides the errors of package directory.
var (
	ErrKeyDocument = errors.New("invalid key document")         // its form, issuer, limits
	ErrKeysExpired = errors.New("the key document has expired") // or holds for over a day
	ErrKeysOld     = errors.New("a newer key document is held") // epoch and seq never go back
	ErrKeysForked  = errors.New("two key documents of one epoch and seq")
)

// A KeysFork is evidence that an origin issued two key documents of one epoch
// and seq (federation.md, E3): the two as the origin signed them. It is an
// ErrKeysForked.
type KeysFork struct {
	Origin     spiffeid.TrustDomain
	Epoch, Seq uint64
	Held, New  string // compact JWS
}

func (f *KeysFork) Error() string {
	return fmt.Sprintf("%v: %s, %d.%d", ErrKeysForked, f.Origin, f.Epoch, f.Seq)
}

// Forked returns the two.
func (f *KeysFork) Forked() (held, other string) { return f.Held, f.New }

func (f *KeysFork) Unwrap() error { return ErrKeysForked }

// A Keyring signs as this node. It verifies the signatures of any origin by the newest
// key document of that origin. It is safe for concurrent use.
type Keyring struct {
	domain  spiffeid.TrustDomain
	bundles *Bundles

	mu     sync.Mutex
	key    *Key
	own    *signed.KeyDocument
	ownJWS string // of own by key, made when it is first asked for
	// checkpointNote is checkpoint signed by key; empty before the first.
	checkpoint     checkpoint.Checkpoint
	checkpointNote string
	origins        map[spiffeid.TrustDomain]*keys
	// certified has, by domain, the answers of Certifies by its present bundle.
	certified map[spiffeid.TrustDomain]*certifications
}

// NewKeyring returns a keyring of a node of domain that signs with key and trusts b. It
// has no key document yet.
func NewKeyring(domain spiffeid.TrustDomain, key *Key, b *Bundles) *Keyring {
	return &Keyring{domain: domain, key: key, bundles: b, origins: map[spiffeid.TrustDomain]*keys{},
		certified: map[spiffeid.TrustDomain]*certifications{}}
}

// Sign returns a compact JWS by this node's signing key, of one of the types of
// package directory.
func (r *Keyring) Sign(typ string, payload []byte) (string, error) {
	r.mu.Lock()
	key := r.key
	r.mu.Unlock()

	return key.sign(typ, payload)
}

// SetKey has the node sign with another key from now on.
func (r *Keyring) SetKey(key *Key) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.key, r.ownJWS, r.checkpointNote = key, "", ""
}

// Verify checks a compact JWS of the type typ by the newest key document of origin, and
// returns its payload as received and the id of the key. The cheap checks come first.
// The error is signed.ErrHeader if the form isn't exactly the one that federation.md
// gives ("Bytes"). It is signed.ErrKeyUnknown if the document lacks the key, no SVID
// attests the key now, or no document in force is held. Else it is signed.ErrKeyRevoked
// or signed.ErrSignature. Keys of the own domain need no attestation: its document is
// replicated state.
func (r *Keyring) Verify(origin spiffeid.TrustDomain, typ, jws string) (payload []byte, kid string, err error) {
	c, kid, err := compact.ParseOwn(jws, typ, compact.MaxSize)
	if err != nil {
		return nil, "", err
	}

	key, err := r.find(origin, kid)
	if err != nil {
		return nil, kid, err
	}

	if err := compact.VerifyOwn(jws, key.Public); err != nil {
		return nil, kid, err
	}

	return c.Payload, kid, nil
}

func (r *Keyring) find(origin spiffeid.TrustDomain, kid string) (signed.SigningKey, error) {
	if origin == r.domain {
		r.mu.Lock()
		own := r.own
		r.mu.Unlock()

		if own == nil {
			return signed.SigningKey{}, signed.ErrKeyUnknown
		}

		return own.Key(kid)
	}

	r.mu.Lock()
	held := r.origins[origin]
	r.mu.Unlock()

	if held == nil {
		return signed.SigningKey{}, fmt.Errorf("%w: no key document of %s is held", signed.ErrKeyUnknown, origin)
	}

	return held.find(kid, r.bundles, time.Now())
}

// SetOwn takes the own domain's key document, which is replicated state and
// trusted as it is.
func (r *Keyring) SetOwn(doc *signed.KeyDocument) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.own, r.ownJWS = doc, ""
}

// Keys returns the newest key document of origin and the JWS that carries it: another
// domain's as it was adopted, the own domain's as signed by this node. ok is false if
// there is none. It is also false if the own document does not list this node's key,
// because this node's signature of it would not be trusted.
func (r *Keyring) Keys(origin spiffeid.TrustDomain) (doc *signed.KeyDocument, jws string, ok bool) {
	r.mu.Lock()
	defer r.mu.Unlock()

	if origin != r.domain {
		held := r.origins[origin]
		if held == nil {
			return nil, "", false
		}

		return held.doc, held.jws, true
	}

	if r.own == nil {
		return nil, "", false
	}

	if r.ownJWS == "" { // else it is known to list the key; long polls ask at each change
		if _, err := r.own.Key(r.key.id); err != nil {
			return r.own, "", false
		}

		signed, err := r.key.sign(signed.TypeKeys, r.own.Payload())
		if err != nil {
			return r.own, "", false
		}

		r.ownJWS = signed
	}

	return r.own, r.ownJWS, true
}

// Adopt verifies a key document of another domain and keeps it if it is the newest. It
// must be in force now and for at most a day, and signed by one of its own keys. That
// key is attested by an SVID of a node of origin that its bundle certifies now, and is
// not revoked by the document held so far. (epoch, seq) doesn't go back while the held
// document is in force. Once that has expired, everything that an honest origin issued
// before has expired too. Without that exception, a thief of a node's key for a
// moment could number a document so high that the origin were never trusted again. A held
// document by a key that no present authority of origin certified (see Certifies) counts
// as none, because a thief of an authority may have made it. Adopt returns the held
// document again if it is shown again. The errors are this package's ErrKey…, a
// *KeysFork, and directory's.
func (r *Keyring) Adopt(origin spiffeid.TrustDomain, jws string) (*signed.KeyDocument, error) {
	if origin == r.domain {
		return nil, fmt.Errorf("%w: the own domain's is replicated, not adopted", ErrKeyDocument)
	}

	now := time.Now()

	next, kid, err := openKeys(origin, jws, now)
	if err != nil {
		return nil, err
	}

	held, forsaken := r.standing(origin)
	if held != nil {
		// Equal documents were verified before, so a repetition costs no signature.
		if next.same(held) {
			return held.doc, nil
		}

		if held.inForce(now) && next.before(held) {
			return nil, fmt.Errorf("%w: %d.%d after %d.%d", ErrKeysOld, next.doc.Epoch, next.doc.Seq, held.doc.Epoch,
				held.doc.Seq)
		}

		// Even a newer document must not be signed by a revoked key: a thief may have made it.
		if _, err := held.doc.Key(kid); errors.Is(err, signed.ErrKeyRevoked) {
			return nil, err
		}
	}

	if err := next.verify(jws, kid, r.bundles, now); err != nil {
		return nil, err
	}

	// The checks ran without the lock, so keep repeats those that another adoption could have changed.
	return r.keep(origin, next, forsaken, now)
}

// VerifyBy verifies a key document of another domain as Adopt does, except by comparison with the held
// one, and a compact JWS of the type typ by that document. It returns the document, and the payload and the
// key of the JWS.
func (r *Keyring) VerifyBy(origin spiffeid.TrustDomain, document, typ, jws string) (doc *signed.KeyDocument,
	payload []byte, key signed.SigningKey, err error) {
	now := time.Now()

	shown, kid, err := openKeys(origin, document, now)
	if err != nil {
		return nil, nil, key, err
	}

	parts, by, err := compact.ParseOwn(jws, typ, compact.MaxSize)
	if err != nil {
		return nil, nil, key, err
	}

	if err := shown.verify(document, kid, r.bundles, now); err != nil {
		return nil, nil, key, err
	}

	if err := shown.verify(jws, by, r.bundles, now); err != nil {
		return nil, nil, key, err
	}

	key, err = shown.doc.Key(by)

	return shown.doc, parts.Payload, key, err
}

// Replace verifies a key document of another domain as VerifyBy does, and puts it in the place of the held
// one, even if that has a later epoch and seq or revokes the key that signed this one. It is for a held
// document that the other nodes of the domain contradict.
func (r *Keyring) Replace(origin spiffeid.TrustDomain, jws string) error {
	now := time.Now()

	next, kid, err := openKeys(origin, jws, now)
	if err != nil {
		return err
	}

	if err := next.verify(jws, kid, r.bundles, now); err != nil {
		return err
	}

	r.mu.Lock()
	defer r.mu.Unlock()

	r.origins[origin] = next

	return nil
}

// standing returns the held key document of origin, as held if it counts, and as forsaken if
// no present authority of origin certified the key that signed it.
func (r *Keyring) standing(origin spiffeid.TrustDomain) (held, forsaken *keys) {
	r.mu.Lock()
	held = r.origins[origin]
	r.mu.Unlock()

	if held == nil {
		return nil, nil
	}

	if key, err := held.doc.Key(held.signer); err == nil && !r.Certifies(origin, key) {
		return nil, held
	}

	return held, nil
}

// Certifies reports whether a present authority of origin certified an SVID that attested the
// key, if only in the past. If not, a former authority did, which the domain has replaced, or
// the operator has dropped because it was stolen. Without any bundle of origin it is true.
func (r *Keyring) Certifies(origin spiffeid.TrustDomain, key signed.SigningKey) bool {
	// Read before the verification, so that a bundle that is set during it makes the answer old.
	generation := r.bundles.generation(origin)
	if generation == 0 {
		return true
	}

	what := attestedOf(key)

	if is, known := r.certification(origin, generation, what); known {
		return is
	}

	// The lock is free meanwhile: the attestations cost signatures, and every Verify needs the lock.
	is := r.certifies(origin, key)

	r.mu.Lock()
	defer r.mu.Unlock()

	// An answer by a bundle that was replaced meanwhile is not kept.
	if known := r.certified[origin]; known != nil && known.generation == generation {
		if len(known.answers) >= maxCertifications {
			clear(known.answers)
		}

		known.answers[what] = is
	}

	return is
}

// certifies is Certifies without the answers that are known.
func (r *Keyring) certifies(origin spiffeid.TrustDomain, key signed.SigningKey) bool {
	// The newest attestation is the one that a present authority most likely certified.
	for i := len(key.Attestations) - 1; i >= 0; i-- {
		// It is judged as of its own time, because the SVIDs behind old documents have expired.
		at, err := attestedAt(key.Attestations[i])
		if err == nil {
			_, err = verifyAttestation(key.Attestations[i], key, origin, r.bundles, at)
		}

		if err == nil {
			return true
		}
	}

	return false
}

// maxCertifications bounds the known answers of Certifies about one domain. Its stored key documents
// seldom list as many keys.
const maxCertifications = 4096

// certifications are the answers of Certifies by one bundle. A domain chooses how many attestations its
// keys have, and Certifies is asked about each key again whenever a key document comes.
type certifications struct {
	generation uint64 // of the bundle
	answers    map[[sha256.Size]byte]bool
}

// certification returns the known answer about a key, and makes room for answers by a bundle of
// that generation.
func (r *Keyring) certification(origin spiffeid.TrustDomain, generation uint64, what [sha256.Size]byte) (
	is, known bool) {
	r.mu.Lock()
	defer r.mu.Unlock()

	answers := r.certified[origin]
	if answers == nil || answers.generation != generation {
		answers = &certifications{generation, map[[sha256.Size]byte]bool{}}
		r.certified[origin] = answers
	}

	is, known = answers.answers[what]

	return is, known
}

// attestedOf returns a hash of all on which the answer of Certifies about a key depends.
func attestedOf(key signed.SigningKey) (sum [sha256.Size]byte) {
	h := sha256.New()
	fmt.Fprintf(h, "%s\n%s\n", key.KeyID(), key.Node)

	for _, attestation := range key.Attestations {
		// The lengths keep lists apart whose attestations have the same concatenation.
		fmt.Fprintf(h, "%d\n%s", len(attestation), attestation)
	}

	h.Sum(sum[:0])

	return sum
}

// keep puts a verified key document in its place, unless a newer one than forsaken came while
// it was verified.
func (r *Keyring) keep(origin spiffeid.TrustDomain, next, forsaken *keys, now time.Time) (*signed.KeyDocument,
	error) {
	r.mu.Lock()
	defer r.mu.Unlock()

	if held := r.origins[origin]; held != nil && held != forsaken {
		switch {
		case next.same(held):
			return held.doc, nil
		case held.inForce(now) && next.before(held):
			return nil, fmt.Errorf("%w: %d.%d after %d.%d", ErrKeysOld, next.doc.Epoch, next.doc.Seq, held.doc.Epoch,
				held.doc.Seq)
		case held.doc.Epoch == next.doc.Epoch && held.doc.Seq == next.doc.Seq:
			return nil, &KeysFork{origin, held.doc.Epoch, held.doc.Seq, held.jws, next.jws}
		}
	}

	r.origins[origin] = next

	return next.doc, nil
}
