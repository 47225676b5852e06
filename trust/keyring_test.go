package trust

import (
	"bytes"
	"crypto"
	"crypto/ecdsa"
	"crypto/ed25519"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/rsa"
	"crypto/sha256"
	"crypto/x509"
	"encoding/pem"
	"errors"
	"fmt"
	"math"
	"math/big"
	"os"
	"path/filepath"
	"runtime"
	"slices"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/spiffe/go-spiffe/v2/svid/x509svid"

	"github.com/roster-mesh/roster/directory"
	"github.com/spiffe/go-spiffe/v2/spiffeid"

	"github.com/roster-mesh/roster/directory/signed"
	"github.com/roster-mesh/roster/directory/strictjson"
	"github.com/roster-mesh/roster/limit/certs"
	"github.com/roster-mesh/roster/trust/compact"
)

func TestKeyIsKept(t *testing.T) {
	dir := t.TempDir()
	first, err := OpenKey(dir)
	must(t, err)
	second, err := OpenKey(dir)
	must(t, err)

	if first.ID() != second.ID() || !first.Public().Equal(second.Public()) {
		t.Error("the key changed")
	}

	info, err := os.Stat(filepath.Join(dir, keyFile))
	must(t, err)

	if info.Mode().Perm() != 0o600 {
		t.Errorf("the key's mode is %v", info.Mode())
	}

	must(t, os.WriteFile(filepath.Join(dir, keyFile), []byte("corrupt"), 0o600))

	if _, err := OpenKey(dir); err == nil {
		t.Error("a corrupt key is replaced in silence")
	}
}

// Our own signatures have one form.
func TestSignForm(t *testing.T) {
	o := newOrigin(t, alpha)
	jws, err := o.ring.Sign(signed.TypeHead, []byte("payload as it is"))
	must(t, err)
	c, kid, err := compact.ParseOwn(jws, signed.TypeHead, compact.MaxSize)
	must(t, err)

	want := `{"alg":"EdDSA","kid":"` + o.key.ID() + `","typ":"adhead+jws"}`
	if got := string(strictjson.AppendObject(nil, c.Header)); got != want || kid != o.key.ID() {
		t.Errorf("header %s, want %s", got, want)
	}

	if payload, _, err := o.ring.Verify(alpha, signed.TypeHead, jws); err != nil ||
		string(payload) != "payload as it is" {
		t.Errorf("payload %q, %v", payload, err)
	}
}

// Requirement: TRUST-009
func TestVerifyNeedsAnAttestedKey(t *testing.T) {
	a, b := newOrigin(t, alpha), newOrigin(t, beta)
	good := a.signingKey(t)
	with := func(attestation string) []signed.SigningKey {
		key := good

		key.Attestations = nil
		if attestation != "" {
			key.Attestations = []string{attestation}
		}

		return []signed.SigningKey{key}
	}
	attest := func(svid *x509svid.SVID, key *Key) string {
		jws, err := key.Attest(svid, time.Now())
		must(t, err)

		return jws
	}
	agent := attestAs(t, a.key, issue(t, a.ca, "/agent/ada"))
	// A chain of beta's in alpha's name, and beta's node for its own name.
	forged := b.ca.issueWith(t, "/roster/node/1", func(c *x509.Certificate) { c.URIs[0].Host = "alpha.test" })
	forged.ID = a.svid.ID
	otherKey, err := OpenKey(t.TempDir())
	must(t, err)
	agentsKey := good
	agentsKey.Node, agentsKey.Attestations = issue(t, a.ca, "/agent/ada").ID, []string{agent}

	for name, row := range map[string]struct {
		keys []signed.SigningKey
		want error
	}{
		"as it should be":      {[]signed.SigningKey{good}, nil},
		"not listed":           {nil, signed.ErrKeyUnknown},
		"not attested":         {with(""), signed.ErrKeyUnknown},
		"attested by an agent": {with(agent), signed.ErrKeyUnknown},
		"attested by an agent that it is said of": {[]signed.SigningKey{agentsKey}, signed.ErrKeyUnknown},
		"attested by another node": {with(attest(issue(t, a.ca, "/roster/node/2"), a.key)),
			signed.ErrKeyUnknown},
		"attested by another domain's chain": {with(attest(forged, a.key)), signed.ErrKeyUnknown},
		"attested by another domain's node":  {with(attest(b.svid, a.key)), signed.ErrKeyUnknown},
		"the attestation of another key":     {with(attest(a.svid, otherKey)), signed.ErrKeyUnknown},
		"no attestation but some text":       {with("x"), signed.ErrKeyUnknown},
		"attested in the future":             {with(attestAt(t, a, 2*time.Minute)), signed.ErrKeyUnknown},
		"attested twice, one of which holds": {[]signed.SigningKey{{Public: good.Public, Node: good.Node,
			Attestations: []string{good.Attestations[0], agent}}}, nil},
		"a clock that is within a minute of ours": {with(attestAt(t, a, 30*time.Second)), nil},
		"a chain that has expired":                {with(attest(expired(t, a), a.key)), signed.ErrKeyUnknown},
		"attested by an SVID of a stranger's CA":  {with(attest(strangersNode(t), a.key)), signed.ErrKeyUnknown},
		"attested under the prefix of other roles": {with(attestAs(t, a.key, issue(t, a.ca, "/roster/nodes/1"))),
			signed.ErrKeyUnknown},
	} {
		ring, _ := reader(t, a, b)
		a.issue(t, 2, row.keys...)

		if _, err := ring.Adopt(alpha, a.signKeys(t, a.doc)); !errors.Is(err, row.want) {
			t.Errorf("%s: adopted with %v, want %v", name, err, row.want)
		}

		jws, err := a.ring.Sign(signed.TypePage, []byte("{}"))
		must(t, err)

		if _, _, err := ring.Verify(alpha, signed.TypePage, jws); !errors.Is(err, row.want) {
			t.Errorf("%s: verified with %v, want %v", name, err, row.want)
		}
	}
}

func attestAs(t *testing.T, key *Key, svid *x509svid.SVID) string {
	t.Helper()

	if _, err := key.Attest(svid, time.Now()); err == nil {
		t.Errorf("%s attests a key", svid.ID)
	}

	// What Attest refuses to do, an attacker does.
	a := attestation{node: svid.ID, public: key.Public(), time: time.Now().Unix()}

	return signAttestation(t, svid, a.payload())
}

func attestAt(t *testing.T, o *origin, ahead time.Duration) string {
	t.Helper()
	jws, err := o.key.Attest(o.svid, time.Now().Add(ahead))
	must(t, err)

	return jws
}

func expired(t *testing.T, o *origin) *x509svid.SVID {
	return o.ca.issueWith(t, "/roster/node/1", func(c *x509.Certificate) { c.NotAfter = time.Now().Add(-time.Second) })
}

func strangersNode(t *testing.T) *x509svid.SVID {
	ca, err := NewCA(alpha, time.Now())
	must(t, err)

	return issue(t, ca, "/roster/node/1")
}

// The key goes on after its first SVID has expired, once it is attested again.
//
// Requirement: TRUST-009
func TestKeyIsAttestedAgain(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		a := newOrigin(t, alpha)
		ring, _ := reader(t, a)
		_, err := ring.Adopt(alpha, a.jws(t))
		must(t, err)
		page, err := a.ring.Sign(signed.TypePage, []byte("{}"))
		must(t, err)
		time.Sleep(time.Hour - time.Second)

		if _, _, err := ring.Verify(alpha, signed.TypePage, page); err != nil {
			t.Errorf("before the SVID expired: %v", err)
		}

		time.Sleep(2 * time.Second)

		if _, _, err := ring.Verify(alpha, signed.TypePage, page); !errors.Is(err, signed.ErrKeyUnknown) {
			t.Errorf("after the SVID expired: %v", err)
		}

		if _, _, err := a.ring.Verify(alpha, signed.TypePage, page); err != nil {
			t.Errorf("at home: %v", err)
		}

		a.svid = issue(t, a.ca, "/roster/node/1")
		a.issue(t, 2, a.signingKey(t))
		_, err = ring.Adopt(alpha, a.jws(t))
		must(t, err)

		if _, _, err := ring.Verify(alpha, signed.TypePage, page); err != nil {
			t.Errorf("attested again: %v", err)
		}

		der, err := x509.MarshalPKCS8PrivateKey(a.key.private)
		must(t, err)

		text := a.jws(t) + string(a.doc.Payload())
		for _, secret := range [][]byte{der, a.key.private.Seed(),
			[]byte(directory.B64.EncodeToString(a.key.private.Seed())),
			pem.EncodeToMemory(&pem.Block{Bytes: der})} {
			if bytes.Contains([]byte(text), secret) {
				t.Error("the private key is in what is published")
			}
		}
	})
}

func TestKeyDocumentExpires(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		a := newOrigin(t, alpha)

		ring, _ := reader(t, a)
		for _, life := range []int64{-1, 0, signed.KeyDocumentLifetime + 61} {
			doc := *a.doc

			doc.Expires = time.Now().Unix() + life
			if _, err := ring.Adopt(alpha, a.signKeys(t, &doc)); !errors.Is(err, ErrKeysExpired) {
				t.Errorf("exp in %d s: %v", life, err)
			}
		}

		doc := *a.doc
		doc.Expires = time.Now().Unix() + 60
		_, err := ring.Adopt(alpha, a.signKeys(t, &doc))
		must(t, err)
		page, err := a.ring.Sign(signed.TypePage, []byte("{}"))
		must(t, err)
		time.Sleep(59 * time.Second)

		if _, _, err := ring.Verify(alpha, signed.TypePage, page); err != nil {
			t.Error(err)
		}

		time.Sleep(time.Second)

		if _, _, err := ring.Verify(alpha, signed.TypePage, page); !errors.Is(err, signed.ErrKeyUnknown) ||
			!errors.Is(err, ErrKeysExpired) {
			t.Errorf("an expired document is used: %v", err)
		}

		// Nor is it a sign of life of whoever shows it once more.
		if _, err := ring.Adopt(alpha, a.signKeys(t, &doc)); !errors.Is(err, ErrKeysExpired) {
			t.Errorf("an expired document is shown again: %v", err)
		}

		// Another one of its number is a fork all the same.
		fork := doc
		fork.Expires = time.Now().Unix() + 60

		if _, err := ring.Adopt(alpha, a.signKeys(t, &fork)); !errors.Is(err, ErrKeysForked) {
			t.Errorf("a fork of an expired document: %v", err)
		}
	})
}

// Who had a node's key for a moment, and numbered a document as high as can be, keeps
// its domain from being believed for as long as that document holds at most.
//
// Requirement: TRUST-010
func TestADocumentThatHasExpiredHoldsNobodyBack(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		a := newOrigin(t, alpha)

		var err error
		a.svid, err = a.ca.Issue("/roster/node/1", 100*time.Hour, time.Now())
		must(t, err)
		ring, _ := reader(t, a)
		a.issue(t, 2, a.signingKey(t))
		stolen := *a.doc
		stolen.Epoch, stolen.Seq, stolen.Mesh = uint64(time.Now().Unix()), math.MaxUint64, nil
		_, err = ring.Adopt(alpha, a.signKeys(t, &stolen))
		must(t, err)
		time.Sleep(signed.KeyDocumentLifetime*time.Second - time.Second)
		a.issue(t, 3, a.signingKey(t))

		if _, err := ring.Adopt(alpha, a.jws(t)); !errors.Is(err, ErrKeysOld) {
			t.Errorf("a document that is in force is replaced by an older one: %v", err)
		}

		time.Sleep(time.Second)

		if doc, err := ring.Adopt(alpha, a.jws(t)); err != nil || doc.Seq != 3 {
			t.Errorf("%+v %v", doc, err)
		}

		if _, err := ring.Adopt(alpha, a.signKeys(t, &stolen)); !errors.Is(err, ErrKeysExpired) {
			t.Errorf("an expired document: %v", err)
		}
	})
}

// A key with many attestations by another authority is judged once for each bundle: a peer chooses their
// number, and its keys are asked about whenever a key document of it comes.
func TestACertificationIsJudgedOnce(t *testing.T) {
	thief := newOrigin(t, alpha)
	a := newOrigin(t, alpha)
	ring, bundles := reader(t, a)

	key := thief.signingKey(t)
	for len(key.Attestations) < maxAttestations {
		key.Attestations = append(key.Attestations, key.Attestations[0])
	}

	// A verification of one attestation alone takes more than this.
	const few = 40
	if made := testing.AllocsPerRun(10, func() {
		if ring.Certifies(alpha, key) {
			t.Error("another authority certifies the key")
		}
	}); made > few {
		t.Errorf("the answer about a known key takes %v allocations", made)
	}

	must(t, bundles.SetX509(alpha, thief.ca.Bundle().X509Authorities()))

	if !ring.Certifies(alpha, key) {
		t.Error("the new authority doesn't certify the key")
	}

	other := key
	other.Node = spiffeid.RequireFromPath(alpha, "/roster/node/2")

	if ring.Certifies(alpha, other) {
		t.Error("the answer about a key of one node counts for another")
	}
}

// An answer by a bundle that is replaced while the attestations are verified is not kept as one by its successor.
//
// Requirement: TRUST-002
func TestACertificationIsOfItsBundle(t *testing.T) {
	a := newOrigin(t, alpha)
	ring, bundles := reader(t, a)
	key := a.signingKey(t)
	known := func() *certifications {
		ring.mu.Lock()
		defer ring.mu.Unlock()

		return ring.certified[alpha]
	}

	// The answer under way can't be held up, so the question is repeated until the bundle is replaced meanwhile.
	for range 1000 {
		clear(ring.certified)

		answered := make(chan struct{})
		go func() {
			defer close(answered)
			ring.Certifies(alpha, key)
		}()

		for known() == nil {
			runtime.Gosched()
		}

		ring.mu.Lock()
		during := len(ring.certified[alpha].answers) == 0
		next := &certifications{bundles.generation(alpha) + 1, map[[sha256.Size]byte]bool{}}
		ring.certified[alpha] = next
		ring.mu.Unlock()
		<-answered

		if during {
			if len(next.answers) > 0 {
				t.Error("the answer by the former bundle is kept for the present one")
			}

			return
		}
	}

	t.Fatal("no answer was under way")
}

// A thief of an authority numbers a key document far ahead, and revokes the true keys in it. Once the
// authority is dropped, the document counts no longer: the true one, of a lower number, takes its
// place, and so does one of the same number, which is no fork. While the authority stays, neither does.
//
// Requirement: TRUST-002, TRUST-010
func TestADocumentOfADroppedAuthorityCountsAsNone(t *testing.T) {
	thief := newOrigin(t, alpha)
	a := newOrigin(t, alpha)
	ring, bundles := reader(t, thief)
	forged := *thief.doc
	forged.Seq, forged.Revoked = 1<<40, []string{a.key.ID()}
	_, err := ring.Adopt(alpha, thief.signKeys(t, &forged))
	must(t, err)

	same := *a.doc
	same.Seq = forged.Seq

	both := slices.Concat(thief.ca.Bundle().X509Authorities(), a.ca.Bundle().X509Authorities())
	must(t, bundles.SetX509(alpha, both))

	for doc, want := range map[*signed.KeyDocument]error{a.doc: ErrKeysOld, &same: signed.ErrKeyRevoked} {
		if _, err := ring.Adopt(alpha, a.signKeys(t, doc)); !errors.Is(err, want) {
			t.Errorf("number %d, while both authorities are trusted: %v, want %v", doc.Seq, err, want)
		}
	}

	must(t, bundles.SetX509(alpha, a.ca.Bundle().X509Authorities()))

	if ring.Certifies(alpha, thief.doc.Keys[0]) || !ring.Certifies(alpha, a.doc.Keys[0]) {
		t.Error("the present authority certifies the thief's key, or not the true one")
	}

	if _, err := ring.Adopt(alpha, thief.signKeys(t, &forged)); !errors.Is(err, signed.ErrKeyUnknown) {
		t.Errorf("the thief's document again: %v", err)
	}

	for _, doc := range []*signed.KeyDocument{&same, a.doc} {
		ring, bundles := reader(t, thief)
		_, err := ring.Adopt(alpha, thief.signKeys(t, &forged))
		must(t, err)
		must(t, bundles.SetX509(alpha, a.ca.Bundle().X509Authorities()))

		if held, err := ring.Adopt(alpha, a.signKeys(t, doc)); err != nil || held.Seq != doc.Seq {
			t.Errorf("the true document of number %d: %v, %v", doc.Seq, held, err)
		}
	}
}

// A document far ahead, which revokes the key that signed the true one, gives way to that once the other
// nodes contradict it. What no attested key signed takes no document's place, and proves no message.
//
// Requirement: SEC-019
func TestADocumentThatOthersContradictIsReplaced(t *testing.T) {
	a, stranger := newOrigin(t, alpha), newOrigin(t, alpha)
	ring, _ := reader(t, a)

	svid, err := a.ca.Issue("/roster/node/2", time.Hour, time.Now())
	must(t, err)
	stolen, err := OpenKey(t.TempDir())
	must(t, err)

	thief := &origin{td: alpha, ca: a.ca, svid: svid, key: stolen}

	forged := *a.doc
	forged.Seq, forged.Keys, forged.Revoked = 1<<60, []signed.SigningKey{thief.signingKey(t)}, []string{a.key.ID()}
	text, err := thief.key.sign(signed.TypeKeys, forged.Payload())
	must(t, err)
	_, err = ring.Adopt(alpha, text)
	must(t, err)

	honest, strange := a.signKeys(t, a.doc), stranger.signKeys(t, stranger.doc)
	head, err := a.key.sign(signed.TypeHead, []byte("{}"))
	must(t, err)

	if _, _, _, err := ring.VerifyBy(alpha, strange, signed.TypeHead, head); !errors.Is(err, signed.ErrKeyUnknown) {
		t.Errorf("a document of an unknown authority: %v", err)
	}

	if _, _, _, err := ring.VerifyBy(alpha, honest, signed.TypeHead, mutateSignature(head)); err == nil {
		t.Error("a head with another signature is verified")
	}

	doc, payload, key, err := ring.VerifyBy(alpha, honest, signed.TypeHead, head)
	if err != nil || doc.Seq != a.doc.Seq || string(payload) != "{}" || key.KeyID() != a.key.ID() {
		t.Errorf("the true document: %v %s %s, %v", doc, payload, key.KeyID(), err)
	}

	for name, text := range map[string]string{"of an unknown authority": strange,
		"with another signature": mutateSignature(honest)} {
		if err := ring.Replace(alpha, text); err == nil {
			t.Errorf("a document %s takes the place", name)
		}
	}

	if held, _, _ := ring.Keys(alpha); held.Seq != forged.Seq {
		t.Errorf("document %d is held", held.Seq)
	}

	must(t, ring.Replace(alpha, honest))

	if held, _, _ := ring.Keys(alpha); held.Seq != a.doc.Seq {
		t.Errorf("document %d is held", held.Seq)
	}
}

// Documents don't go back, and a fork is told from a repetition.
func TestAdoptOrder(t *testing.T) {
	a := newOrigin(t, alpha)
	ring, _ := reader(t, a)
	at := func(epoch, seq uint64) *signed.KeyDocument {
		doc := *a.doc
		doc.Epoch, doc.Seq = epoch, seq

		return &doc
	}
	held, err := ring.Adopt(alpha, a.signKeys(t, at(2, 5)))
	must(t, err)

	for _, old := range []*signed.KeyDocument{at(2, 4), at(1, 9)} {
		if _, err := ring.Adopt(alpha, a.signKeys(t, old)); !errors.Is(err, ErrKeysOld) {
			t.Errorf("%d.%d after 2.5: %v", old.Epoch, old.Seq, err)
		}
	}

	if again, err := ring.Adopt(alpha, a.signKeys(t, at(2, 5))); err != nil || again != held {
		t.Errorf("the same again: %v", err)
	}

	fork := at(2, 5)
	fork.Mesh = nil
	_, err = ring.Adopt(alpha, a.signKeys(t, fork))

	var evidence *KeysFork
	if !errors.Is(err, ErrKeysForked) || !errors.As(err, &evidence) || evidence.Held != a.signKeys(t, at(2, 5)) ||
		evidence.New != a.signKeys(t, fork) {
		t.Errorf("a fork: %v", err)
	}

	// A fork that the origin didn't sign convicts nobody.
	stranger := newOrigin(t, alpha)
	if _, err := ring.Adopt(alpha, stranger.signKeys(t, fork)); !errors.Is(err, signed.ErrKeyUnknown) {
		t.Errorf("a stranger's fork: %v", err)
	}

	mutant := mutateSignature(a.signKeys(t, fork))
	if _, err := ring.Adopt(alpha, mutant); !errors.Is(err, signed.ErrSignature) {
		t.Errorf("a fork with a broken signature: %v", err)
	}

	if _, err := ring.Adopt(alpha, a.signKeys(t, at(uint64(time.Now().Add(2*time.Minute).Unix()), 1))); !errors.Is(err,
		ErrKeyDocument) {
		t.Errorf("an epoch of the future: %v", err)
	}

	if _, err := ring.Adopt(beta, a.signKeys(t, at(3, 1))); !errors.Is(err, ErrKeyDocument) {
		t.Errorf("alpha's as beta's: %v", err)
	}

	if _, err := a.ring.Adopt(alpha, a.signKeys(t, at(3, 1))); !errors.Is(err, ErrKeyDocument) {
		t.Errorf("the own one: %v", err)
	}

	if doc, jws, ok := ring.Keys(alpha); !ok || doc != held || jws != a.signKeys(t, at(2, 5)) {
		t.Error("what is held changed")
	}

	if _, err := ring.Adopt(alpha, a.signKeys(t, at(3, 1))); err != nil {
		t.Errorf("a new epoch: %v", err)
	}
}

func TestKeyDocumentLimits(t *testing.T) {
	a := newOrigin(t, alpha)
	ring, _ := reader(t, a)
	good := a.signingKey(t)

	heavy, many := good, []signed.SigningKey{good}
	for len(heavy.Attestations) <= maxAttestations {
		heavy.Attestations = append(heavy.Attestations, "x")
	}

	for range signed.MaxSigningKeys {
		key, err := OpenKey(t.TempDir())
		must(t, err)
		many = append(many, signed.SigningKey{Public: key.Public(), Node: good.Node})
	}

	for name, keys := range map[string][]signed.SigningKey{
		"a key twice": {good, good}, "too many keys": many, "too many attestations": {heavy},
	} {
		a.issue(t, 2, keys...)

		if _, err := ring.Adopt(alpha, a.signKeys(t, a.doc)); !errors.Is(err, ErrKeyDocument) {
			t.Errorf("%s: %v", name, err)
		}
	}

	a.issue(t, 2, good)

	a.doc.Revoked = make([]string, maxRevoked+1)
	if _, err := ring.Adopt(alpha, a.signKeys(t, a.doc)); !errors.Is(err, ErrKeyDocument) {
		t.Errorf("too many revoked keys: %v", err)
	}
}

func mutateSignature(jws string) string {
	b := []byte(jws)

	i := len(b) - 10
	if b[i] == 'A' {
		b[i] = 'B'
	} else {
		b[i] = 'A'
	}

	return string(b)
}

func TestRevokedAndRemovedKeys(t *testing.T) {
	a := newOrigin(t, alpha)
	ring, bundles := reader(t, a)
	page, err := a.ring.Sign(signed.TypePage, []byte("{}"))
	must(t, err)

	if _, _, err := ring.Verify(alpha, signed.TypePage, page); !errors.Is(err, signed.ErrKeyUnknown) {
		t.Errorf("without a key document: %v", err)
	}

	_, err = ring.Adopt(alpha, a.jws(t))
	must(t, err)
	_, _, err = ring.Verify(alpha, signed.TypePage, page)
	must(t, err)

	if _, _, err := ring.Verify(beta, signed.TypePage, page); !errors.Is(err, signed.ErrKeyUnknown) {
		t.Errorf("as beta's: %v", err)
	}

	if _, _, err := ring.Verify(alpha, signed.TypeHead, page); !errors.Is(err, signed.ErrHeader) {
		t.Errorf("as a head: %v", err)
	}

	// The domain's CA is withdrawn: at once, whatever was found before.
	jwks, err := bundles.JWKS(alpha)
	must(t, err)
	bundles.Remove(alpha)

	if _, _, err := ring.Verify(alpha, signed.TypePage, page); !errors.Is(err, signed.ErrKeyUnknown) {
		t.Errorf("without the bundle: %v", err)
	}

	must(t, bundles.Set(alpha, jwks))
	_, _, err = ring.Verify(alpha, signed.TypePage, page)
	must(t, err)

	// Another node's key takes over and revokes the first.
	second := &origin{td: alpha, ca: a.ca, svid: issue(t, a.ca, "/roster/node/2")}
	second.key, err = OpenKey(t.TempDir())
	must(t, err)
	second.ring = NewKeyring(alpha, second.key, NewBundles())
	second.issue(t, 2, a.signingKey(t), second.signingKey(t))
	second.doc.Revoked = []string{a.key.ID()}
	_, err = ring.Adopt(alpha, second.jws(t))
	must(t, err)

	if _, kid, err := ring.Verify(alpha, signed.TypePage, page); !errors.Is(err, signed.ErrKeyRevoked) ||
		kid != a.key.ID() {
		t.Errorf("by a revoked key: %v", err)
	}

	// The thief of the revoked key can't take the revocation back.
	a.issue(t, 3, a.signingKey(t))

	if _, err := ring.Adopt(alpha, a.jws(t)); !errors.Is(err, signed.ErrKeyRevoked) {
		t.Errorf("a document by a revoked key: %v", err)
	}

	if _, _, ok := second.ring.Keys(alpha); !ok {
		t.Error("a listed node has no key document to show")
	}

	a.ring.SetOwn(second.doc)

	if _, _, ok := a.ring.Keys(alpha); ok {
		t.Error("a node shows a key document signed by its revoked key")
	}
}

// SVIDs attest with the key that they have, and an ECDSA signature has one form.
//
// Requirement: TRUST-011
func TestAttestationAlgorithms(t *testing.T) {
	a := newOrigin(t, alpha)
	p384, err := ecdsa.GenerateKey(elliptic.P384(), rand.Reader)
	must(t, err)
	p521, err := ecdsa.GenerateKey(elliptic.P521(), rand.Reader)
	must(t, err)
	rsaKey, err := rsa.GenerateKey(rand.Reader, 2048)
	must(t, err)
	_, edKey, err := ed25519.GenerateKey(rand.Reader)
	must(t, err)

	_, bundles := reader(t, a)
	for _, signer := range []crypto.Signer{a.svid.PrivateKey, p384, rsaKey, edKey} {
		svid := a.ca.issueFor(t, "/roster/node/1", signer, nil)
		for range 8 { // half of all ECDSA signatures come out as the higher twin
			jws, err := a.key.Attest(svid, time.Now())
			must(t, err)
			key := signed.SigningKey{Public: a.key.Public(), Node: svid.ID}

			until, err := verifyAttestation(jws, key, alpha, bundles, time.Now())
			if err != nil || !until.Equal(svid.Certificates[0].NotAfter) {
				t.Errorf("%T: until %v, %v", signer, until, err)
			}

			public, ok := signer.Public().(*ecdsa.PublicKey)
			if !ok {
				continue
			}

			if _, err := verifyAttestation(twin(jws, public), key, alpha, bundles, time.Now()); !errors.Is(err,
				signed.ErrSignature) {
				t.Errorf("%T: its twin: %v", signer, err)
			}
		}
	}

	if _, err := a.key.Attest(a.ca.issueFor(t, "/roster/node/1", p521, nil), time.Now()); err == nil {
		t.Error("P-521 attests")
	}

	short := &rsa.PublicKey{N: new(big.Int).Lsh(big.NewInt(1), certs.MinRSA-2), E: certs.MaxExponent}
	if alg, err := certs.AlgorithmOf(short); err == nil {
		t.Errorf("an RSA key of %d bits attests by %s", short.N.BitLen(), alg)
	}
}

// A key is believed for no longer than every certificate of a chain holds that vouches
// for it, though it was judged while all of them did.
//
// Requirement: TRUST-009
func TestAKeyIsBelievedAsLongAsItsWholeChain(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		a := newOrigin(t, alpha)
		authority := *a.ca.cert
		authority.URIs, authority.NotBefore, authority.NotAfter = nil, time.Now(), time.Now().Add(10*time.Minute)
		key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
		must(t, err)
		between, err := certify(&authority, a.ca.cert, key.Public(), a.ca.key)
		must(t, err)
		svid := (&CA{td: alpha, cert: between, key: key}).issueWith(t, "/roster/node/1", nil)
		svid.Certificates = append(svid.Certificates, between)
		a.svid = svid
		a.issue(t, 2, a.signingKey(t))
		ring, _ := reader(t, a)
		_, err = ring.Adopt(alpha, a.jws(t))
		must(t, err)
		page, err := a.ring.Sign(signed.TypePage, []byte("{}"))
		must(t, err)
		_, _, err = ring.Verify(alpha, signed.TypePage, page)
		must(t, err)
		time.Sleep(11 * time.Minute)

		if _, _, err := ring.Verify(alpha, signed.TypePage, page); !errors.Is(err, signed.ErrKeyUnknown) {
			t.Errorf("an authority that ended vouches for it: %v", err)
		}
	})
}

// A key that no SVID vouches for is not judged again for each message that it signed,
// and is judged again after a while.
func TestAKeyIsJudgedAtAPace(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		a := newOrigin(t, alpha)
		good, early := a.signingKey(t), a.ca.issueWith(t, "/roster/node/2", func(c *x509.Certificate) {
			c.NotBefore = time.Now().Add(time.Second)
		})
		late, err := OpenKey(t.TempDir())
		must(t, err)
		attestation, err := late.Attest(early, time.Now())
		must(t, err)
		a.issue(t, 2, good, signed.SigningKey{Public: late.Public(), Node: early.ID,
			Attestations: []string{attestation}})
		ring, _ := reader(t, a)
		_, err = ring.Adopt(alpha, a.jws(t))
		must(t, err)
		page, err := late.sign(signed.TypePage, []byte("{}"))
		must(t, err)

		start := time.Now()
		for _, row := range []struct {
			at   time.Duration
			want error
		}{{0, signed.ErrKeyUnknown}, {retryAfter - time.Second, signed.ErrKeyUnknown}, {retryAfter, nil}} {
			time.Sleep(row.at - time.Since(start))

			if _, _, err := ring.Verify(alpha, signed.TypePage, page); !errors.Is(err, row.want) {
				t.Errorf("after %v: %v", row.at, err)
			}
		}
	})
}

// twin is the other ECDSA signature of the same message.
func twin(jws string, key *ecdsa.PublicKey) string {
	dot := bytes.LastIndexByte([]byte(jws), '.')
	signature, _ := directory.B64.DecodeString(jws[dot+1:])
	half := signature[len(signature)/2:]
	s := new(big.Int).SetBytes(half)
	s.Sub(key.Params().N, s).FillBytes(half)

	return jws[:dot+1] + directory.B64.EncodeToString(signature)
}

func TestKeyringConcurrently(t *testing.T) {
	a := newOrigin(t, alpha)
	ring, bundles := reader(t, a)
	page, err := a.ring.Sign(signed.TypePage, []byte("{}"))
	must(t, err)
	jwks, err := bundles.JWKS(alpha)
	must(t, err)

	docs := make([]string, 20)
	for i := range docs {
		a.issue(t, uint64(i+1), a.signingKey(t))
		docs[i] = a.jws(t)
	}

	_, err = ring.Adopt(alpha, docs[0])
	must(t, err)

	var all sync.WaitGroup
	for range 4 {
		all.Go(func() {
			for i, doc := range docs {
				if _, err := ring.Adopt(alpha, doc); err != nil && !errors.Is(err, ErrKeysOld) {
					t.Errorf("document %d: %v", i, err)
				}

				if _, _, err := ring.Verify(alpha, signed.TypePage, page); err != nil {
					t.Error(err)
				}

				must(t, bundles.Set(alpha, jwks))
			}
		})
	}

	all.Wait()

	if doc, _, _ := ring.Keys(alpha); doc.Seq != uint64(len(docs)) {
		t.Errorf("document %d is held", doc.Seq)
	}
}

func BenchmarkVerify(b *testing.B) {
	a := newOrigin(b, alpha)

	ring, _ := reader(b, a)
	if _, err := ring.Adopt(alpha, a.jws(b)); err != nil {
		b.Fatal(err)
	}

	for _, size := range []int{300, 16 << 10, 250 << 10} {
		jws, err := a.ring.Sign(signed.TypePage, make([]byte, size))
		must(b, err)
		b.Run(fmt.Sprintf("payload=%d", size), func(b *testing.B) {
			for b.Loop() {
				if _, _, err := ring.Verify(alpha, signed.TypePage, jws); err != nil {
					b.Fatal(err)
				}
			}
		})
	}
}
