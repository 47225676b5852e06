package trust

import (
	"bytes"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/go-json-experiment/json"
	"github.com/go-json-experiment/json/jsontext"
	"github.com/spiffe/go-spiffe/v2/bundle/x509bundle"
	"github.com/spiffe/go-spiffe/v2/spiffeid"

	"github.com/roster-mesh/roster/directory"
	"github.com/roster-mesh/roster/directory/checkpoint"
	"github.com/roster-mesh/roster/directory/signed"
	"github.com/roster-mesh/roster/trust/compact"
)

// An Offence is a way in which a domain contradicts itself (federation.md,
// "Evidence"). Nothing else convicts.
type Offence string

// The offences that evidence can show.
const (
	TwoDigests      Offence = "E1" // of one epoch, stream, registration and revision
	TwoRoots        Offence = "E2" // of one ledger and size
	TwoKeyDocuments Offence = "E3" // of one epoch and seq
)

// ErrEquivocation means that evidence holds: a domain signed two structures that an
// honest domain can't both have signed.
var ErrEquivocation = errors.New("the domain contradicts itself")

// An Evidence file shows that a domain contradicted itself, to any verifier that trusts
// the domain's bundle. All parts are as the domain signed them.
type Evidence struct {
	Offence Offence  `json:"offence"`
	Pages   []string `json:"pages,omitempty"` // of TwoDigests: the two, compact JWS
	// Checkpoints are, of TwoRoots, the two signed notes.
	Checkpoints []string `json:"checkpoints,omitempty"`
	// of TwoKeyDocuments the two; else one or two that list the keys of the two parts
	Keys   []string       `json:"keys"`
	Bundle jsontext.Value `json:"bundle"` // the domain's SPIFFE bundle, a JWKS object
}

// Bytes returns the evidence file.
func (e *Evidence) Bytes() []byte { return encodeFile(e) }

// isEvidence reports whether data is an evidence file rather than a proof file.
func isEvidence(data []byte) bool {
	var e struct {
		Offence *Offence `json:"offence"`
	}

	return json.Unmarshal(data, &e) == nil && e.Offence != nil
}

// parseEvidence reads an evidence file. Another domain made it, perhaps with a later
// release, so unknown members are ignored (FORM-004). The trial judges the contents.
func parseEvidence(data []byte) (*Evidence, error) {
	if len(data) > MaxProof {
		return nil, fmt.Errorf("%w: over %d bytes", ErrFormat, MaxProof)
	}

	evidence := new(Evidence)
	if err := json.Unmarshal(data, evidence); err != nil {
		return nil, fmt.Errorf("%w: not an evidence file: %w", ErrFormat, err)
	}

	switch {
	case evidence.Offence == TwoDigests && len(evidence.Pages) == 2 && len(evidence.Checkpoints) == 0 &&
		(len(evidence.Keys) == 1 || len(evidence.Keys) == 2):
	case evidence.Offence == TwoRoots && len(evidence.Pages) == 0 && len(evidence.Checkpoints) == 2 &&
		(len(evidence.Keys) == 1 || len(evidence.Keys) == 2):
		return evidence, nil
	case len(evidence.Checkpoints) > 0:
		return nil, fmt.Errorf("%w: evidence of kind E2 has two checkpoints and the keys' documents, and no other "+
			"kind has checkpoints", ErrFormat)
	case evidence.Offence == TwoKeyDocuments && len(evidence.Pages) == 0 && len(evidence.Keys) == 2:
	default:
		return nil, fmt.Errorf("%w: evidence is E1 with two pages and the keys' documents, E2 with two checkpoints "+
			"and those, or E3 with two key documents", ErrFormat)
	}

	return evidence, nil
}

// A Conviction is the contradiction that evidence proves of a domain.
type Conviction struct {
	Domain   spiffeid.TrustDomain
	Offence  Offence
	ID       string // the same for every evidence of this contradiction
	Epoch    uint64
	Audience directory.Audience // of the stream; zero for TwoKeyDocuments
	Keys     []string           // ids of the keys that signed the two
	What     string             // a sentence
}

// Accuse makes evidence of two pages that origin signed, or of two checkpoints of its ledger, by those of
// the key documents, the newest first, that list their keys, or of two key documents if parts is nil. Judge
// decides whether it holds.
func (r *Keyring) Accuse(origin spiffeid.TrustDomain, parts, keys []string) ([]byte, error) {
	bundle, err := r.bundles.JWKS(origin)
	if err != nil {
		return nil, err
	}

	evidence := Evidence{Offence: TwoKeyDocuments, Keys: keys, Bundle: bundle}

	switch {
	case parts == nil:
		return evidence.Bytes(), nil
	case strings.Contains(parts[0], "\n"): // a note, and no compact JWS
		evidence.Offence, evidence.Checkpoints = TwoRoots, parts
	default:
		evidence.Offence, evidence.Pages = TwoDigests, parts
	}

	evidence.Keys = listing(parts, keys)

	return evidence.Bytes(), nil
}

// listing returns the first document for each page or checkpoint that lists its key, or the first
// of all if none lists any.
func listing(parts, docs []string) []string {
	var used []string
	for _, part := range parts {
		i := slices.IndexFunc(docs, func(text string) bool { return lists(text, part) })
		if i >= 0 && !slices.Contains(used, docs[i]) {
			used = append(used, docs[i])
		}
	}

	// Judge refuses the file for its unknown key then; without any document it would be malformed.
	if used == nil {
		used = docs[:min(1, len(docs))]
	}

	return used
}

// lists reports whether a key document lists the key of a page or checkpoint.
func lists(text, part string) bool {
	jws, _, err := compact.ParseOwn(text, signed.TypeKeys, compact.MaxSize)
	if err != nil {
		return false
	}

	doc, err := signed.ParseKeyDocument(jws.Payload)
	if err != nil {
		return false
	}

	if note, err := checkpoint.Parse(part); err == nil {
		_, listed := logKeyOf(note, doc)
		return listed
	}

	_, kid, err := compact.ParseOwn(part, signed.TypePage, compact.MaxSize)
	if err == nil {
		_, err = doc.Key(kid)
	}

	return err == nil
}

// logKeyOf returns the key of a document of which a checkpoint of its ledger has a line.
func logKeyOf(note *checkpoint.Note, doc *signed.KeyDocument) (key signed.SigningKey, ok bool) {
	for _, key := range doc.Keys {
		vkey := checkpoint.VerifierKey{Name: doc.LogOrigin(), Type: checkpoint.TypeLog, Key: key.Public}
		if note.Origin == vkey.Name && slices.ContainsFunc(note.Signatures, func(s checkpoint.Signature) bool {
			return s.Name == vkey.Name && s.ID == vkey.ID()
		}) {
			return key, true
		}
	}

	return key, false
}

// Judge checks evidence by the bundle that is trusted now, not by the file's own bundle,
// and returns the conviction. Any error means that no domain is convicted. A signature
// by a key that the newest key document revokes is no evidence, because a thief may have
// made it. A structure of a past epoch is no evidence either.
//
// News is evidence that was not judged here before. An attestation itself states when it
// was made. So a finder of the key of an SVID that ended long ago can make an
// attestation, a key document that lists the key, and structures signed by it. Therefore
// each key of news must be in the newest key document, or attested by an SVID that ended
// within directory.MaxLifetime. Announcements made before that have expired too, unless
// their domain is configured to grant longer lifetimes. An older contradiction then
// convicts no domain. That is better than convicting an honest domain by a stolen old
// key.
func (r *Keyring) Judge(evidence []byte, news bool) (*Conviction, error) {
	verification := newVerification(evidence)

	verification.bundles = r.bundles
	if err := verification.run(trialSteps); !errors.Is(err, ErrEquivocation) {
		return nil, err
	}

	found := verification.trial.found
	if found.Domain == r.domain {
		return nil, fmt.Errorf("%w: it is against this domain itself: %s", ErrKey, found.What)
	}

	r.mu.Lock()
	held := r.origins[found.Domain]
	r.mu.Unlock()

	if news {
		if err := verification.recent(held); err != nil {
			return nil, err
		}
	}

	// Without its key document, no revocation and no later epoch of the domain is known.
	if held == nil {
		return found, nil
	}

	for _, kid := range found.Keys {
		if _, err := held.doc.Key(kid); errors.Is(err, signed.ErrKeyRevoked) {
			return nil, fmt.Errorf("%w: %s", err, kid)
		}
	}

	if found.Epoch < held.doc.Epoch {
		return nil, fmt.Errorf("%w: its epoch %d is over", ErrKeysOld, found.Epoch)
	}

	return found, nil
}

// recent returns an error if a key that was used is neither in held, which may be
// nil, nor vouched for recently.
func (v *verification) recent(held *keys) error {
	least := time.Now().Add(-directory.MaxLifetime * time.Second)
	for _, signedBy := range v.trial.signed {
		if held != nil {
			if _, err := held.doc.Key(signedBy.kid); !errors.Is(err, signed.ErrKeyUnknown) {
				continue // one that is revoked is refused by itself
			}
		}

		until, err := v.trial.attested(signedBy.kid, v.issuer, v.authorities)
		if err == nil && until.Before(least) {
			err = fmt.Errorf("no SVID vouches for it since %s", until.UTC().Format(time.RFC3339))
		}

		if err != nil {
			return fmt.Errorf("%w: key %s: %w", ErrKey, signedBy.kid, err)
		}
	}

	return nil
}

// trialSteps end in ErrEquivocation if the evidence convicts.
var trialSteps = []step{
	{"format", (*verification).evidenceFormat},
	{"anchor", (*verification).anchor},
	{"key attestation", (*verification).evidenceKeys},
	{"signatures", (*verification).evidenceSignatures},
	{"contradiction", (*verification).contradiction},
	{"verdict", (*verification).conviction},
}

// A trial holds the findings of the steps on an evidence file.
type trial struct {
	evidence *Evidence
	docs     []*signed.KeyDocument
	pages    []*signed.Page
	notes    []*checkpoint.Note
	signed   []signedBy // the documents, then the pages or checkpoints
	issues   [][]byte   // the documents' payloads, as they were signed
	found    *Conviction
}

// A signedBy is a part with the id of the key that is to have signed it: a compact JWS, or a checkpoint.
type signedBy struct {
	jws, kid string
	note     *checkpoint.Note
}

// evidenceFormat reads all parts, and checks no signature.
func (v *verification) evidenceFormat() (string, error) {
	t := &v.trial

	var err error
	if t.evidence, err = parseEvidence(v.input); err != nil {
		return "", err
	}

	v.checkLayout(t.evidence.Bytes(), encodeCompact(t.evidence))

	// The documents come first in t.signed: contradiction takes the last two parts as the offending ones.
	for _, text := range t.evidence.Keys {
		jws, kid, err := compact.ParseOwn(text, signed.TypeKeys, compact.MaxSize)
		if err != nil {
			return "", fmt.Errorf("%w: a key document: %w", ErrFormat, err)
		}

		doc, err := signed.ParseKeyDocument(jws.Payload)
		if err == nil {
			err = checkLimits(doc)
		}

		if err != nil {
			return "", malformed("a key document", err)
		}

		t.docs = append(t.docs, doc)
		t.issues = append(t.issues, jws.Payload)
		t.signed = append(t.signed, signedBy{jws: text, kid: kid})
	}

	// The checkpoints follow the documents, which say by which keys their lines are.
	for _, text := range t.evidence.Checkpoints {
		if err := t.takeCheckpoint(text); err != nil {
			return "", err
		}
	}

	for _, text := range t.evidence.Pages {
		jws, kid, err := compact.ParseOwn(text, signed.TypePage, compact.MaxSize)
		if err != nil {
			return "", fmt.Errorf("%w: a page: %w", ErrFormat, err)
		}

		page, err := signed.ParsePage(jws.Payload)
		if err != nil {
			return "", malformed("a page", err)
		}

		t.pages, t.signed = append(t.pages, page), append(t.signed, signedBy{jws: text, kid: kid})
	}

	// The first document names the domain; contradiction refuses documents of several.
	v.issuer, v.ownBundle = t.docs[0].Issuer, t.evidence.Bundle
	v.report.Subject = Subject{Domain: v.issuer.Name(), Epoch: t.docs[0].Epoch}

	return fmt.Sprintf("an evidence file of kind %s against %s, in canonical form", t.evidence.Offence,
		v.issuer.Name()), nil
}

// takeCheckpoint reads a checkpoint of the evidence.
func (t *trial) takeCheckpoint(text string) error {
	note, err := checkpoint.Parse(text)
	if err != nil {
		return fmt.Errorf("%w: a checkpoint: %w", ErrFormat, err)
	}

	kid := "" // of no key
	for _, doc := range t.docs {
		if key, ok := logKeyOf(note, doc); ok {
			kid = key.KeyID()
			break
		}
	}

	t.notes, t.signed = append(t.notes, note), append(t.signed, signedBy{kid: kid, note: note})

	return nil
}

// evidenceKeys checks that an SVID of a node of the domain vouched for each key
// that is used, or that the pinned key document lists it, and that no document in the
// file takes the key back.
func (v *verification) evidenceKeys() (string, error) {
	if v.pinned {
		return v.pinnedKeys()
	}

	for _, s := range v.trial.signed {
		if _, err := v.trial.attested(s.kid, v.issuer, v.authorities); err != nil {
			return "", fmt.Errorf("%w: key %s: %w", ErrKey, s.kid, err)
		}
	}

	return "an SVID that held when it signed vouches for each key", nil
}

// pinnedKeys is evidenceKeys if the verifier pinned a key document.
func (v *verification) pinnedKeys() (string, error) {
	for _, signedBy := range v.trial.signed {
		if _, err := v.keys.Key(signedBy.kid); err != nil {
			return "", fmt.Errorf("%w: key %s: %w", ErrKey, signedBy.kid, err)
		}

		// A document of the file may be newer than the pinned one, so its revocations count as well.
		for _, doc := range v.trial.docs {
			if _, err := doc.Key(signedBy.kid); errors.Is(err, signed.ErrKeyRevoked) {
				return "", fmt.Errorf("%w: key %s: %w", ErrKey, signedBy.kid, err)
			}
		}
	}

	return "the pinned key document lists each key", nil
}

// attested returns until when the last of a key's attestations holds that held when it
// was made. A page may be older or newer than the attestations of the document that is
// at hand: the question is whose key it is.
func (t *trial) attested(kid string, td spiffeid.TrustDomain, b x509bundle.Source) (until time.Time, err error) {
	err = signed.ErrKeyUnknown
	for _, doc := range t.docs {
		key, missing := doc.Key(kid)

		// One revocation outweighs attestations in other documents, because a thief may have signed the parts.
		if errors.Is(missing, signed.ErrKeyRevoked) {
			return time.Time{}, missing
		}

		if missing != nil {
			continue
		}

		for _, jws := range key.Attestations {
			end := time.Time{}

			at, failed := attestedAt(jws)
			if failed == nil {
				end, failed = verifyAttestation(jws, key, td, b, at)
			}

			switch {
			case failed == nil && end.After(until):
				until = end
			case until.IsZero():
				err = failed
			}
		}
	}

	if !until.IsZero() {
		return until, nil
	}

	return time.Time{}, err
}

// attestedAt returns the time that an attestation states as its own.
func attestedAt(jws string) (time.Time, error) {
	c, err := compact.Parse(jws, signed.TypeAttestation, maxAttestation, "alg", "typ", "x5c")
	if err != nil {
		return time.Time{}, err
	}

	attestation, err := parseAttestation(c.Payload)
	if err != nil {
		return time.Time{}, err
	}

	return time.Unix(attestation.time, 0), nil
}

// evidenceSignatures checks the signature of each part of the file.
func (v *verification) evidenceSignatures() (string, error) {
	for _, signedBy := range v.trial.signed {
		key, err := v.trial.key(signedBy.kid)

		switch {
		case err != nil:
		case signedBy.note == nil:
			err = compact.VerifyOwn(signedBy.jws, key.Public)
		case !signedBy.note.Signed(signedBy.note.Origin, key.Public):
			err = signed.ErrSignature
		}

		if err != nil {
			return "", err
		}
	}

	return fmt.Sprintf("%d, all by keys of %s", len(v.trial.signed), v.issuer.Name()), nil
}

func (t *trial) key(kid string) (signed.SigningKey, error) {
	for _, doc := range t.docs {
		if key, err := doc.Key(kid); err == nil {
			return key, nil
		}
	}

	return signed.SigningKey{}, fmt.Errorf("%w: %w", ErrKey, signed.ErrKeyUnknown)
}

var errNoContradiction = fmt.Errorf("%w: the two do not contradict each other", ErrFormat)

// contradiction looks for two structures that an honest domain can't both have signed.
func (v *verification) contradiction() (string, error) {
	t := &v.trial
	for _, doc := range t.docs {
		if doc.Issuer != v.issuer {
			return "", fmt.Errorf("%w: the parts are of several domains", ErrFormat)
		}
	}

	find := t.twoDigests

	switch t.evidence.Offence {
	case TwoKeyDocuments:
		find = t.twoKeyDocuments
	case TwoRoots:
		find = t.twoRoots
	}

	found := find()
	if found == nil {
		return "", errNoContradiction
	}

	found.Domain, found.Offence = v.issuer, t.evidence.Offence

	// The last two parts are those that contradict each other: for E3 the documents themselves.
	for _, s := range t.signed[len(t.signed)-2:] {
		found.Keys = append(found.Keys, s.kid)
	}

	// The hash covers the place of the contradiction and not the file, so all evidence of it has one ID.
	sum := sha256.Sum256([]byte(string(found.Offence) + " " + v.issuer.Name() + " " + found.ID))
	found.ID = string(found.Offence) + "-" + hex.EncodeToString(sum[:8])
	t.found = found

	return found.What, nil
}

// twoKeyDocuments is E3.
func (t *trial) twoKeyDocuments() *Conviction {
	document, b := t.docs[0], t.docs[1]
	if document.Epoch != b.Epoch || document.Seq != b.Seq || bytes.Equal(t.issues[0], t.issues[1]) {
		return nil
	}

	return &Conviction{ID: fmt.Sprint(document.Epoch, " ", document.Seq), Epoch: document.Epoch,
		What: fmt.Sprintf("%s signed two key documents with number %d of epoch %d", document.Issuer.Name(),
			document.Seq, document.Epoch)}
}

// twoRoots is E2. Checkpoints of two sizes are never compared, because that needs the leaves.
func (t *trial) twoRoots() *Conviction {
	one, other := t.notes[0], t.notes[1]
	i := slices.IndexFunc(t.docs, func(doc *signed.KeyDocument) bool { return doc.LogOrigin() == one.Origin })

	if i < 0 || one.Origin != other.Origin || one.Size != other.Size || one.Root == other.Root {
		return nil
	}

	return &Conviction{ID: fmt.Sprint(t.docs[i].Epoch, " ", one.Size), Epoch: t.docs[i].Epoch,
		What: fmt.Sprintf("%s signed two roots of the ledger %s with %d leaves, %s and %s", t.docs[i].Issuer.Name(),
			one.Origin, one.Size, one.Root, other.Root)}
}

// twoDigests is E1. It never compares ranges, nor members that only one page lists.
func (t *trial) twoDigests() *Conviction {
	page, b := t.pages[0], t.pages[1]

	// The streams of two audiences may differ in the disclosed members, so they are never compared.
	if page.Issuer != t.docs[0].Issuer || page.Issuer != b.Issuer || page.Epoch != b.Epoch ||
		page.Audience != b.Audience {
		return nil
	}

	for _, digest := range page.Digests {
		i := slices.IndexFunc(b.Digests, func(y signed.Digest) bool {
			return y.RID == digest.RID && y.Revision == digest.Revision && y != digest
		})
		if i < 0 {
			continue
		}

		return &Conviction{ID: fmt.Sprint(page.Epoch, " ", page.Audience, " ", digest.RID, " ", digest.Revision),
			Epoch: page.Epoch, Audience: page.Audience,
			What: fmt.Sprintf("%s signed two entries for registration %s at revision %d, %s and %s",
				page.Issuer.Name(), digest.RID, digest.Revision, signed.AppendDigest(nil, digest),
				signed.AppendDigest(nil, b.Digests[i]))}
	}

	return nil
}

// conviction ends a trial: the file holds, and that is bad news.
func (v *verification) conviction() (string, error) {
	detail := fmt.Sprintf("nothing new of %s is to be believed", v.issuer.Name())
	return detail, &StepError{"verdict", fmt.Errorf("%w: %s", ErrEquivocation, detail)}
}
