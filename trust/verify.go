package trust

import (
	"bytes"
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/spiffe/go-spiffe/v2/bundle/spiffebundle"
	"github.com/spiffe/go-spiffe/v2/bundle/x509bundle"
	"github.com/spiffe/go-spiffe/v2/spiffeid"

	"github.com/roster-mesh/roster/directory"
	"github.com/roster-mesh/roster/directory/checkpoint"
	"github.com/roster-mesh/roster/directory/signed"
	"github.com/roster-mesh/roster/trust/compact"
)

// VerifyOptions states the anchor of a verification and the time as of which it judges.
// Without a Bundle, Keys or Directory nothing is called authentic.
type VerifyOptions struct {
	// Bundle is the trust bundle of the record's domain. One of no trust domain
	// (ParseBundle) may hold the authorities of several.
	Bundle *spiffebundle.Bundle
	// OfConnection says that Bundle was chosen for a connection to a directory. It
	// is then the anchor for those domains alone that its authorities name.
	OfConnection bool
	// Held says that a directory verifies for its caller, by a bundle that it holds.
	Held bool
	// Keys is a key document of the record's domain, a compact JWS, and takes the
	// place of the file's own. With Bundle it is judged by that; without, it is the
	// anchor itself.
	Keys string
	// Directory is the address of the directory that answered with the input over
	// an authenticated connection.
	Directory string
	// Policy says which witnesses must have cosigned the checkpoint under which the ledger
	// holds the record; nil for none. It is no anchor.
	Policy *checkpoint.Policy
	// Inclusion is a C2SP tlog-proof of the record's leaf, for an input without one.
	Inclusion string
	// Staple says that the input comes from the agent itself: it must be of at most
	// MaxStaple bytes, have a page of this one entry, and be at most StapleLifetime old.
	Staple bool
	// At is the time as of which lifetimes are judged; the zero time is now.
	At time.Time
}

// Verify checks a proof file, a bare record or an evidence file, offline, and reports
// the finding of each step. Evidence that holds ends with ErrEquivocation. The error is
// a *StepError. The report is returned with it, up to the step that failed.
func Verify(input []byte, opts VerifyOptions) (*Report, error) {
	if opts.At.IsZero() {
		opts.At = time.Now()
	}

	verification := newVerification(input)
	verification.opts = opts

	return verification.report, verification.run(verification.stepsFor(bytes.TrimSpace(input)))
}

func newVerification(input []byte) *verification {
	return &verification{input: input, report: &Report{Anchor: AnchorNone, Unchecked: []string{}}}
}

// stepsFor determines a file's kind from its text, and returns the steps that check it.
func (v *verification) stepsFor(text []byte) []step {
	// A record is a JWT, which begins with a letter; the other files are JSON objects.
	switch {
	case len(text) > 0 && text[0] != '{':
		v.bare = true
		v.proof = &Proof{Record: string(text)}

		return recordSteps
	case len(text) <= MaxProof && isEvidence(text):
		return trialSteps
	}

	return proofSteps
}

// A step checks one property. It returns its finding in words, or the reason why the
// file fails. errNotShown skips it.
type step struct {
	name string
	run  func(*verification) (detail string, err error)
}

// The steps in their order: form, then the anchor, then from the SVID down to the
// record, then time and ledger.
var proofSteps = []step{
	{"format", (*verification).format},
	{"statement", (*verification).statement},
	{"anchor", (*verification).anchor},
	{"key attestation", (*verification).attestation},
	{"key document", (*verification).keyDocument},
	{"page signature", (*verification).pageSignature},
	{"page", (*verification).page},
	{"signature", (*verification).signature},
	{"deadline", (*verification).deadline},
	{"inclusion", (*verification).inclusion},
	{"witnesses", (*verification).witnesses},
}

// recordSteps check a bare record. It has no page, so nothing in it shows whether it is
// in force.
var recordSteps = []step{
	{"format", (*verification).recordFormat},
	{"statement", (*verification).statement},
	{"anchor", (*verification).anchor},
	{"key attestation", (*verification).attestation},
	{"key document", (*verification).keyDocument},
	{"signature", (*verification).recordSignature},
	{"deadline", func(*verification) (string, error) {
		return "a bare record holds no deadline; its proof file does", errNotShown
	}},
	{"inclusion", (*verification).inclusion},
	{"witnesses", (*verification).witnesses},
}

var errNotShown = errors.New("not shown")

// A verification holds the findings of the steps so far.
type verification struct {
	opts   VerifyOptions
	report *Report
	input  []byte
	bare   bool // the input is a record and no proof file

	proof     *Proof
	rec       signed.Record
	recKey    string       // kid, as the next two
	recJWS    *compact.JWS // the statement's
	pageJWS   *compact.JWS
	pageKey   string
	keysKey   string
	keysText  string // compact JWS
	signed    *signed.Page
	keys      *signed.KeyDocument
	contents  *signed.Contents
	issuer    spiffeid.TrustDomain
	ownBundle []byte // the file's; nil for none
	digest    signed.Digest
	trial     trial
	attested  bool             // the file has an attestation in place of a key document
	note      *checkpoint.Note // the file's checkpoint, once it includes the record; nil for none

	// The anchors of the verdict: authorities, or the key document alone if it is
	// pinned. A directory's own bundles decide instead of opts unless they are nil.
	authorities *x509bundle.Bundle
	pinned      bool
	bundles     *Bundles
}

func (v *verification) run(steps []step) error {
	var failed error
	for _, step := range steps {
		if failed != nil {
			v.report.Steps = append(v.report.Steps, Step{Name: step.name, Skipped: true, Detail: "not reached"})
			continue
		}

		detail, err := step.run(v)
		switch {
		case err == nil, errors.Is(err, ErrEquivocation):
			v.report.Steps = append(v.report.Steps, Step{Name: step.name, OK: true, Detail: detail})
			failed = err // valid evidence holds at each step
		case errors.Is(err, errNotShown):
			v.report.Steps = append(v.report.Steps, Step{Name: step.name, Skipped: true, Detail: detail})
		default:
			v.report.Steps = append(v.report.Steps, Step{Name: step.name, Detail: err.Error()})
			failed = &StepError{step.name, err}
		}
	}

	v.report.Authentic = failed == nil && v.report.Signed
	v.report.Verdict = v.verdict(failed)

	return failed
}

// format reads all parts, and looks at no signature.
func (v *verification) format() (string, error) {
	if v.opts.Staple && len(v.input) > MaxStaple {
		return "", fmt.Errorf("%w: a staple has at most %d bytes, got %d", ErrFormat, MaxStaple, len(v.input))
	}

	var err error
	if v.proof, err = ParseProof(v.input); err != nil {
		return "", err
	}

	if v.proof.Ext != nil {
		v.leaveUnchecked(UncheckedExt)
	}

	v.checkLayout(v.proof.Bytes(), encodeCompact(v.proof))

	if err := v.readRecord(); err != nil {
		return "", err
	}

	if v.pageJWS, v.pageKey, err = compact.ParseOwn(v.proof.Page, signed.TypePage, compact.MaxSize); err != nil {
		return "", malformed("the page", err)
	}

	if v.signed, err = signed.ParsePage(v.pageJWS.Payload); err != nil {
		return "", malformed("the page", err)
	}

	if err := v.takeInclusion(); err != nil {
		return "", err
	}

	if v.proof.Attestation != "" {
		return "a staple: record, page and attestation in canonical form", v.readAttestation(v.proof.Attestation)
	}

	return "a proof file: record, page and key document in canonical form", v.readKeys(v.proof.Keys)
}

func (v *verification) recordFormat() (string, error) {
	v.checkLayout([]byte(v.proof.Record))

	if v.opts.Staple {
		return "", fmt.Errorf("%w: a bare record is no staple; it holds no page and no attestation", ErrFormat)
	}

	if err := v.readRecord(); err != nil {
		return "", err
	}

	return "a bare record in canonical form", v.takeInclusion()
}

func (v *verification) readRecord() error {
	var err error
	if v.rec, err = signed.ParseRecord(v.proof.Record); err != nil {
		return fmt.Errorf("%w: %w", ErrFormat, err)
	}

	if v.recJWS, v.recKey, err = compact.ParseOwn(v.rec.JWS, signed.TypeRecord, signed.MaxRecord); err != nil {
		return fmt.Errorf("%w: the record: %w", ErrFormat, err)
	}

	return nil
}

// statement opens the record. It reads the contents, and checks that each disclosed
// member was signed.
func (v *verification) statement() (string, error) {
	contents, err := signed.OpenRecord(v.recJWS.Payload, v.rec.Disclosures)
	if err != nil {
		return "", malformed("the record", err)
	}

	v.contents = contents
	v.issuer = contents.Issuer
	v.ownBundle = v.proof.Bundle
	v.report.Subject = subjectOf(contents)

	if contents.Op == signed.OpEnd {
		return "ends a registration, and discloses no members", nil
	}

	v.report.Document = contents.Document.Bytes()

	detail := fmt.Sprintf("members disclosed: %d, each as the statement commits to it", len(v.rec.Disclosures))
	if contents.Redacted {
		detail += "; others withheld"
	}

	return detail, nil
}

// judgedAt returns the time at which the keys that are used must be attested: the
// page's, because records outlive SVIDs. A bare record doesn't state when it was signed,
// so its key is judged as of opts.At.
func (v *verification) judgedAt() time.Time {
	if v.bare {
		return v.opts.At
	}

	return time.Unix(v.signed.IssuedAt, 0)
}

// attestation checks that an SVID of a node vouched for each key that is used.
func (v *verification) attestation() (string, error) {
	if v.keys.Issuer != v.contents.Issuer {
		return "", fmt.Errorf("%w: the keys are of %s and the record of %s", ErrKey, v.keys.Issuer, v.contents.Issuer)
	}

	used := []string{v.keysKey, v.recKey}
	if !v.bare {
		used = append(used, v.pageKey)
		v.nameSigner()
	}

	if v.pinned {
		return "not checked: the key document is pinned", errNotShown
	}

	at := v.judgedAt()
	for _, kid := range used {
		key, err := v.keys.Key(kid)
		if err != nil {
			continue // the step that checks its signature fails
		}

		if verdict := judgeKey(key, v.contents.Issuer, v.authorities, at); verdict.err != nil {
			return "", fmt.Errorf("%w: key %s of %s: %w", ErrKey, kid, key.Node, verdict.err)
		}
	}

	return fmt.Sprintf("an SVID valid at %s vouches for each key", at.UTC().Format(time.RFC3339)), nil
}

// nameSigner reports the key that signed the page, and its node, if the key document
// lists it.
func (v *verification) nameSigner() {
	if key, err := v.keys.Key(v.pageKey); err == nil {
		v.report.Subject.Key = v.pageKey
		v.report.Subject.Node = key.Node.String()
	}
}

// check verifies a signature by one of the document's keys, all of which that are
// used were found attested.
func (v *verification) check(jws, kid string) error {
	key, err := v.keys.Key(kid)
	if err != nil {
		return fmt.Errorf("%w: %s: %w", ErrKey, kid, err)
	}

	return compact.VerifyOwn(jws, key.Public)
}

func (v *verification) keyDocument() (string, error) {
	if v.attested {
		return "the file has an attestation in its place, and shows no revocation", errNotShown
	}

	expires := time.Unix(v.keys.Expires, 0)

	// A document that expired after the page was made still lists the keys that the domain had then.
	if at := v.judgedAt(); !expires.After(at) {
		if v.bare {
			return "", fmt.Errorf("%w: the key document, at %s; give a newer one",
				ErrExpired, expires.UTC().Format(time.RFC3339))
		}

		return "", fmt.Errorf("%w: the key document had expired when the page was made", ErrKey)
	}

	if err := v.check(v.keysText, v.keysKey); err != nil {
		return "", err
	}

	return fmt.Sprintf("key document %d of epoch %d lists the domain's keys (%d) and is signed by %s",
		v.keys.Seq, v.keys.Epoch, len(v.keys.Keys), v.keysKey), nil
}

func (v *verification) pageSignature() (string, error) {
	if err := v.check(v.proof.Page, v.pageKey); err != nil {
		return "", err
	}

	v.report.Subject.Checked = time.Unix(v.signed.IssuedAt, 0).UTC()

	return fmt.Sprintf("signed by %s at %s", v.pageKey, v.report.Subject.Checked.Format(time.RFC3339)), nil
}

// changes are the changes of a registration as people call them.
var changes = map[signed.Op]string{
	signed.OpPut: "registered", signed.OpRenew: "refreshed", signed.OpEnd: "ended",
}

// readersOf names the domains that a page is for.
func readersOf(audience directory.Audience) string {
	if audience == directory.Mesh {
		return "all peers"
	}

	return "the peer " + audience.String()
}

// page checks that the page names this record: u, h, m and r.
func (v *verification) page() (string, error) {
	p := v.signed

	contents := v.contents
	if p.Issuer != contents.Issuer {
		return "", fmt.Errorf("%w: the page is of %s and the record of %s", ErrFormat, p.Issuer, contents.Issuer)
	}

	if time.Unix(p.IssuedAt, 0).After(v.opts.At.Add(MaxClockSkew)) {
		return "", fmt.Errorf("%w: the page is dated %s, after the time as of which it is judged, %s", ErrFormat,
			time.Unix(p.IssuedAt, 0).UTC().Format(time.RFC3339), v.opts.At.UTC().Format(time.RFC3339))
	}

	i := slices.IndexFunc(p.Digests, func(d signed.Digest) bool { return d.RID == contents.RID })
	if i < 0 {
		return "", fmt.Errorf("%w: the page does not list registration %s", ErrFormat, contents.RID)
	}

	digest := p.Digests[i]

	// A record is of a put or an end; a page may list a put as renewed since.
	wantLive := contents.Op == signed.OpPut
	switch {
	case digest.Live() != wantLive || !wantLive && digest.Op != signed.OpEnd:
		return "", fmt.Errorf("%w: the page says %s of the registration, the record %s", ErrFormat, digest.Op,
			contents.Op)
	case digest.H != contents.H:
		return "", fmt.Errorf("%w: the page names another statement (h)", ErrFormat)
	case wantLive && digest.M != contents.M:
		return "", fmt.Errorf("%w: the page names other disclosures (m)", ErrFormat)
	case p.Epoch < contents.Epoch || p.Epoch == contents.Epoch && digest.Revision < contents.Revision:
		return "", fmt.Errorf("%w: the page's revision is before the record's (r)", ErrFormat)
	}

	if v.opts.Staple && (len(p.Digests) != 1 || p.From != digest.Revision-1 || p.To != digest.Revision) {
		return "", fmt.Errorf("%w: the page of a staple lists its registration alone, from %d to %d; this one is "+
			"from %d to %d with %d", ErrFormat, digest.Revision-1, digest.Revision, p.From, p.To, len(p.Digests))
	}

	v.digest = digest

	return fmt.Sprintf("the page for %s lists this record as %s at revision %d", readersOf(p.Audience),
		changes[digest.Op], digest.Revision), nil
}

func (v *verification) signature() (string, error) {
	if err := v.check(v.rec.JWS, v.recKey); err != nil {
		return "", err
	}

	v.report.Signed = v.report.Anchor != AnchorNone

	contents := v.contents
	if contents.Op == signed.OpEnd {
		return fmt.Sprintf("signed by %s: %s ended registration %s at revision %d", v.recKey, contents.Issuer,
			contents.RID, contents.Revision), nil
	}

	return fmt.Sprintf("signed by %s: %s registered %q at revision %d", v.recKey, contents.Issuer, contents.Agent,
		contents.Revision) + v.report.Subject.registration(), nil
}

// recordSignature is signature of a bare record. It checks the record's date as well,
// because nothing else shows when the record was made.
func (v *verification) recordSignature() (string, error) {
	if time.Unix(v.contents.IssuedAt, 0).After(v.opts.At.Add(MaxClockSkew)) {
		return "", fmt.Errorf("%w: the record is dated in the future", ErrFormat)
	}

	detail, err := v.signature()
	if err != nil {
		return "", err
	}

	return detail + "; whether it is still in force is not shown", nil
}

func (v *verification) deadline() (string, error) {
	if !v.digest.Live() {
		return "the registration has ended", errNotShown
	}

	deadline := time.Unix(v.digest.Deadline, 0).UTC()

	v.report.Subject.Deadline = deadline
	if !v.opts.At.Before(deadline) {
		return "", fmt.Errorf("%w: its deadline was %s", ErrExpired, deadline.Format(time.RFC3339))
	}

	if !v.opts.Staple {
		return fmt.Sprintf("good until %s", deadline.Format(time.RFC3339)), nil
	}

	fresh := time.Unix(v.signed.IssuedAt, 0).Add(StapleLifetime).UTC()
	if !v.opts.At.Before(fresh) {
		return "", fmt.Errorf("%w: the staple was fresh until %s; ask the agent for a newer one", ErrExpired,
			fresh.Format(time.RFC3339))
	}

	if fresh.Before(deadline) {
		deadline = fresh
	}

	return fmt.Sprintf("a staple, fresh until %s", deadline.Format(time.RFC3339)), nil
}
