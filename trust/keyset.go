package trust

import (
	"bytes"
	"errors"
	"fmt"
	"sync"
	"time"

	"github.com/spiffe/go-spiffe/v2/bundle/x509bundle"
	"github.com/spiffe/go-spiffe/v2/spiffeid"

	"github.com/roster-mesh/roster/directory/signed"
	"github.com/roster-mesh/roster/trust/compact"
)

const (
	maxAttestations = 8 // of one key
	maxRevoked      = 4096

	// retryAfter is the shortest time between two verifications of a key without a valid
	// attestation, however often its signatures arrive.
	retryAfter = 10 * time.Second
)

// keys is one origin's key document with the verdicts on its attestations.
type keys struct {
	doc     *signed.KeyDocument
	payload []byte
	jws     string
	signer  string // id of the key that signed jws

	mu     sync.Mutex
	judged map[string]verdict // by key id
}

// A verdict on a key's attestations holds until then, as long as the origin's
// bundle is the same.
type verdict struct {
	err        error // nil: attested
	until      time.Time
	generation uint64
}

// openKeys parses a key document's JWS and checks everything except its signer.
func openKeys(origin spiffeid.TrustDomain, jws string, now time.Time) (*keys, string, error) {
	c, kid, err := compact.ParseOwn(jws, signed.TypeKeys, compact.MaxSize)
	if err != nil {
		return nil, "", err
	}

	doc, err := signed.ParseKeyDocument(c.Payload)
	if err != nil {
		return nil, "", fmt.Errorf("%w: %w", ErrKeyDocument, err)
	}

	if doc.Issuer != origin {
		return nil, "", fmt.Errorf("%w: it is %s's, not %s's", ErrKeyDocument, doc.Issuer, origin)
	}

	// An epoch is a time in seconds: one of the future would make all documents after a restore look old.
	if doc.Epoch > uint64(max(0, now.Add(MaxClockSkew).Unix())) {
		return nil, "", fmt.Errorf("%w: its epoch is of the future", ErrKeyDocument)
	}

	if err := checkLimits(doc); err != nil {
		return nil, "", err
	}

	// A peer may learn of a revocation only when the document expires, so it holds for a day at most.
	left := time.Unix(doc.Expires, 0).Sub(now)
	if left <= 0 || left > signed.KeyDocumentLifetime*time.Second+MaxClockSkew {
		return nil, "", fmt.Errorf("%w: exp is %v from now", ErrKeysExpired, left.Round(time.Second))
	}

	return &keys{doc: doc, payload: c.Payload, jws: jws, signer: kid, judged: map[string]verdict{}}, kid, nil
}

func checkLimits(doc *signed.KeyDocument) error {
	if len(doc.Keys) > signed.MaxSigningKeys || len(doc.Revoked) > maxRevoked {
		return fmt.Errorf("%w: over %d keys or %d revoked ones", ErrKeyDocument, signed.MaxSigningKeys, maxRevoked)
	}

	for _, key := range doc.Keys {
		if len(key.Attestations) > maxAttestations {
			return fmt.Errorf("%w: a key has over %d attestations", ErrKeyDocument, maxAttestations)
		}
	}

	return nil
}

func (k *keys) same(o *keys) bool { return bytes.Equal(k.payload, o.payload) }

func (k *keys) inForce(now time.Time) bool { return now.Unix() < k.doc.Expires }

// before reports whether k was issued before o.
func (k *keys) before(keys *keys) bool {
	if k.doc.Epoch != keys.doc.Epoch {
		return k.doc.Epoch < keys.doc.Epoch
	}

	return k.doc.Seq < keys.doc.Seq
}

// find returns the key of that id if the document lists it, does not revoke it,
// is in force, and an attestation of it holds now. A key is judged once, and
// again when its chain has expired or the origin's bundle has changed.
func (k *keys) find(kid string, bundles *Bundles, now time.Time) (signed.SigningKey, error) {
	key, err := k.doc.Key(kid)
	if err != nil {
		return key, err
	}

	if !k.inForce(now) {
		return key, fmt.Errorf("%w: %w", signed.ErrKeyUnknown, ErrKeysExpired)
	}

	// It is read before the judgement, so that a bundle that is set during it makes the verdict stale.
	generation := bundles.generation(k.doc.Issuer)
	k.mu.Lock()
	defer k.mu.Unlock()

	// The lock is held during the judgement, so that many signatures by one key cost one verification.
	verdict, ok := k.judged[kid]
	if !ok || verdict.generation != generation || !now.Before(verdict.until) {
		verdict = judgeKey(key, k.doc.Issuer, bundles, now)
		verdict.generation = generation
		k.judged[kid] = verdict
	}

	return key, verdict.err
}

// verify checks the signature of a compact JWS by the document's key of an id. The document itself brings
// the key, so the signature shows nothing unless the key is attested.
func (k *keys) verify(jws, kid string, bundles *Bundles, now time.Time) error {
	key, err := k.find(kid, bundles, now)
	if err != nil {
		return err
	}

	return compact.VerifyOwn(jws, key.Public)
}

// judgeKey looks for an attestation of key that holds now, the newest first.
func judgeKey(key signed.SigningKey, td spiffeid.TrustDomain, b x509bundle.Source, now time.Time) verdict {
	err := errors.New("it has none")
	for i := len(key.Attestations) - 1; i >= 0; i-- {
		var until time.Time
		if until, err = verifyAttestation(key.Attestations[i], key, td, b, now); err == nil {
			return verdict{until: until}
		}
	}

	return verdict{fmt.Errorf("%w: no attestation of it holds: %w", signed.ErrKeyUnknown, err), now.Add(retryAfter), 0}
}
