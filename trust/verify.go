package trust

import (
	"bytes"
	"crypto/x509"
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/spiffe/go-spiffe/v2/bundle/spiffebundle"
	"github.com/spiffe/go-spiffe/v2/bundle/x509bundle"
	"github.com/spiffe/go-spiffe/v2/spiffeid"

	"github.com/roster-mesh/roster/directory"
)

// VerifyOptions says whom Verify believes, and when.
type VerifyOptions struct {
	// Bundle decides whom to trust; nil takes the proof's own, which shows only
	// that the proof agrees with itself. One of no trust domain (ParseBundle) is
	// taken for the record's.
	Bundle *spiffebundle.Bundle
	Now    time.Time // the zero time is now
}

// Verify checks a proof file, a bare record or an evidence file, offline, and
// tells step by step what it found. A bare record shows its form only; evidence
// that holds ends with ErrEquivocation. The error is a *StepError; the report is
// there with it, as far as it came.
func Verify(input []byte, opts VerifyOptions) (*Report, error) {
	if opts.Now.IsZero() {
		opts.Now = time.Now()
	}
	v := &verification{opts: opts, report: new(Report)}
	steps := proofSteps
	switch text := bytes.TrimSpace(input); {
	case len(text) > 0 && text[0] != '{':
		v.proof, steps = &Proof{Record: string(text)}, recordSteps
	case len(text) <= MaxProof && isEvidence(text):
		steps = trialSteps
	}
	v.input = input
	return v.report, v.run(steps)
}

// A step looks at one thing. It returns what it found in words, or why the proof
// fails; errNotShown skips it.
type step struct {
	name string
	run  func(*verification) (detail string, err error)
}

// The steps in their order: form, then whom we trust, then from the SVID down to
// the record, then time and ledger.
var proofSteps = []step{
	{"format", (*verification).format},
	{"statement", (*verification).statement},
	{"bundle", (*verification).bundle},
	{"key attestation", (*verification).attestation},
	{"key document", (*verification).keyDocument},
	{"page signature", (*verification).pageSignature},
	{"page", (*verification).page},
	{"signature", (*verification).signature},
	{"deadline", (*verification).deadline},
	{"inclusion", (*verification).inclusion},
}

var recordSteps = []step{
	{"format", (*verification).recordFormat},
	{"statement", (*verification).statement},
	{"signature", func(*verification) (string, error) {
		return "a bare record carries no keys: this shows its form, not who signed it. Ask for its proof file", errNotShown
	}},
	{"deadline", func(*verification) (string, error) {
		return "a record holds no deadline; its proof file does", errNotShown
	}},
	{"inclusion", func(*verification) (string, error) { return "not logged", errNotShown }},
}

var errNotShown = errors.New("not shown")

// A verification is what the steps so far have found.
type verification struct {
	opts   VerifyOptions
	report *Report
	input  []byte

	proof     *Proof
	rec       directory.Record
	recKey    string   // kid, as the next two
	recJWS    *compact // the statement's
	pageJWS   *compact
	pageKey   string
	keysJWS   *compact
	keysKey   string
	signed    *directory.SignedPage
	keys      *directory.KeyDocument
	contents  *directory.Contents
	issuer    spiffeid.TrustDomain
	ownBundle []byte // the file's; nil for none
	anchors   *x509bundle.Bundle
	bundles   *Bundles // decides instead of opts.Bundle, unless nil
	trial     trial
	digest    directory.Digest
	authentic bool
}

func (v *verification) run(steps []step) error {
	var failed error
	for _, s := range steps {
		if failed != nil {
			v.report.Steps = append(v.report.Steps, Step{Name: s.name, Skipped: true, Detail: "not reached"})
			continue
		}
		detail, err := s.run(v)
		switch {
		case err == nil:
			v.report.Steps = append(v.report.Steps, Step{Name: s.name, OK: true, Detail: detail})
		case errors.Is(err, errNotShown):
			v.report.Steps = append(v.report.Steps, Step{Name: s.name, Skipped: true, Detail: detail})
		default:
			v.report.Steps = append(v.report.Steps, Step{Name: s.name, Detail: err.Error()})
			failed = &StepError{s.name, err}
		}
	}
	v.report.Authentic = failed == nil && v.authentic
	return failed
}

// format reads all parts, and looks at no signature.
func (v *verification) format() (string, error) {
	var err error
	if v.proof, err = ParseProof(v.input); err != nil {
		return "", err
	}
	if _, err := v.recordFormat(); err != nil {
		return "", err
	}
	if v.pageJWS, v.pageKey, err = parseOwn(v.proof.Page, directory.TypePage, MaxJWS); err != nil {
		return "", fmt.Errorf("%w: the page: %w", ErrFormat, err)
	}
	if v.signed, err = directory.ParsePage(v.pageJWS.payload); err != nil {
		return "", fmt.Errorf("%w: %w", ErrFormat, err)
	}
	if v.keysJWS, v.keysKey, err = parseOwn(v.proof.Keys, directory.TypeKeys, MaxJWS); err != nil {
		return "", fmt.Errorf("%w: the key document: %w", ErrFormat, err)
	}
	if v.keys, err = directory.ParseKeyDocument(v.keysJWS.payload); err != nil {
		return "", fmt.Errorf("%w: %w", ErrFormat, err)
	}
	if err := checkLimits(v.keys); err != nil {
		return "", fmt.Errorf("%w: %w", ErrFormat, err)
	}
	return "a proof file: record, page and key document in canonical form", nil
}

func (v *verification) recordFormat() (string, error) {
	var err error
	if v.rec, err = directory.ParseRecord(v.proof.Record); err != nil {
		return "", fmt.Errorf("%w: %w", ErrFormat, err)
	}
	if v.recJWS, v.recKey, err = parseOwn(v.rec.JWS, directory.TypeRecord, directory.MaxRecord); err != nil {
		return "", fmt.Errorf("%w: the record: %w", ErrFormat, err)
	}
	return "a bare record in canonical form", nil
}

// statement opens the record: what it says, and that each member that is
// disclosed is one that was signed.
func (v *verification) statement() (string, error) {
	c, err := directory.OpenRecord(v.recJWS.payload, v.rec.Disclosures)
	if err != nil {
		return "", fmt.Errorf("%w: %w", ErrFormat, err)
	}
	v.contents, v.issuer, v.ownBundle = c, c.Issuer, v.proof.Bundle
	v.report.Subject = Subject{
		Domain: c.Issuer.Name(), RID: c.RID.String(), Agent: c.Agent, Kind: string(c.Document.Kind()),
		Owner: c.Owner.String(), Epoch: c.Epoch, Revision: c.Revision,
		Issued: time.Unix(c.IssuedAt, 0).UTC(), Redacted: c.Redacted,
	}
	if c.Op == directory.OpEnd {
		return fmt.Sprintf("%s ended registration %s at revision %d", c.Issuer, c.RID, c.Revision), nil
	}
	detail := fmt.Sprintf("%s registered %q at revision %d; %d members disclosed", c.Issuer, c.Agent, c.Revision, len(v.rec.Disclosures))
	if c.Redacted {
		detail += ", others withheld"
	}
	return detail, nil
}

// bundle decides whose certificates are believed.
func (v *verification) bundle() (string, error) {
	issuer := v.issuer
	if v.bundles != nil {
		held, err := v.bundles.GetX509BundleForTrustDomain(issuer)
		if err != nil {
			return "", fmt.Errorf("%w: %w", ErrKey, err)
		}
		v.anchors = held
		return "the bundle that is believed here", nil
	}
	given, whose := v.opts.Bundle, "the bundle that was given"
	if given == nil {
		if v.ownBundle == nil {
			return "", fmt.Errorf("%w: the file has no bundle, so give one", ErrKey)
		}
		var err error
		if given, err = ParseBundle(issuer, v.ownBundle); err != nil {
			return "", fmt.Errorf("%w: the file's bundle: %w", ErrKey, err)
		}
		whose = "the file's own bundle, which shows only that the file agrees with itself: give the bundle that you trust;"
	}
	if td := given.TrustDomain(); !td.IsZero() && td != issuer {
		return "", fmt.Errorf("%w: the bundle is %s's and the file %s's", ErrKey, td, issuer)
	}
	authorities := slices.DeleteFunc(given.X509Authorities(), func(a *x509.Certificate) bool { return !speaksFor(a, issuer) })
	if len(authorities) == 0 {
		return "", fmt.Errorf("%w: the bundle has no authority of %s", ErrKey, issuer)
	}
	v.anchors = x509bundle.FromX509Authorities(issuer, authorities)
	return fmt.Sprintf("%s %d authorities of %s", whose, len(authorities), issuer), nil
}

// attestation checks that an SVID of a node vouched for each key that is used,
// at the time that the page gives.
func (v *verification) attestation() (string, error) {
	if v.keys.Issuer != v.contents.Issuer {
		return "", fmt.Errorf("%w: the key document is %s's and the record %s's", ErrKey, v.keys.Issuer, v.contents.Issuer)
	}
	at := time.Unix(v.signed.IssuedAt, 0)
	for _, kid := range []string{v.keysKey, v.pageKey, v.recKey} {
		key, err := v.keys.Key(kid)
		if err != nil {
			continue // the step that needs it says so
		}
		if verdict := judgeKey(key, v.contents.Issuer, v.anchors, at); verdict.err != nil {
			return "", fmt.Errorf("%w: key %s of %s: %w", ErrKey, kid, key.Node, verdict.err)
		}
		if kid == v.pageKey {
			v.report.Subject.Key, v.report.Subject.Node = kid, key.Node.String()
		}
	}
	return fmt.Sprintf("an SVID that held at %s vouches for each key", at.UTC().Format(time.RFC3339)), nil
}

// check verifies a signature by one of the document's keys, all of which that are
// used were found attested.
func (v *verification) check(jws, kid string) error {
	key, err := v.keys.Key(kid)
	if err != nil {
		return fmt.Errorf("%w: %s: %w", ErrKey, kid, err)
	}
	return verifyOwn(jws, key.Public)
}

func (v *verification) keyDocument() (string, error) {
	if v.keys.Expires <= v.signed.IssuedAt {
		return "", fmt.Errorf("%w: the key document had expired when the page was made", ErrKey)
	}
	if err := v.check(v.proof.Keys, v.keysKey); err != nil {
		return "", err
	}
	return fmt.Sprintf("issue %d.%d, %d keys, signed by %s", v.keys.Epoch, v.keys.Seq, len(v.keys.Keys), v.keysKey), nil
}

func (v *verification) pageSignature() (string, error) {
	if err := v.check(v.proof.Page, v.pageKey); err != nil {
		return "", err
	}
	v.report.Subject.Checked = time.Unix(v.signed.IssuedAt, 0).UTC()
	return fmt.Sprintf("signed by %s at %s", v.pageKey, v.report.Subject.Checked.Format(time.RFC3339)), nil
}

// page checks that the page names this record: u, h, m and r.
func (v *verification) page() (string, error) {
	p, c := v.signed, v.contents
	if p.Issuer != c.Issuer {
		return "", fmt.Errorf("%w: the page is %s's and the record %s's", ErrFormat, p.Issuer, c.Issuer)
	}
	if time.Unix(p.IssuedAt, 0).After(v.opts.Now.Add(maxAhead)) {
		return "", fmt.Errorf("%w: the page is dated in the future", ErrFormat)
	}
	i := slices.IndexFunc(p.Digests, func(d directory.Digest) bool { return d.RID == c.RID })
	if i < 0 {
		return "", fmt.Errorf("%w: the page does not list registration %s", ErrFormat, c.RID)
	}
	d := p.Digests[i]
	wantLive := c.Op == directory.OpPut
	switch {
	case d.Live() != wantLive || !wantLive && d.Op != directory.OpEnd:
		return "", fmt.Errorf("%w: the page says %s of the registration, the record %s", ErrFormat, d.Op, c.Op)
	case d.H != c.H:
		return "", fmt.Errorf("%w: the page names another statement (h)", ErrFormat)
	case wantLive && d.M != c.M:
		return "", fmt.Errorf("%w: the page names other disclosures (m)", ErrFormat)
	case p.Epoch < c.Epoch || p.Epoch == c.Epoch && d.Revision < c.Revision:
		return "", fmt.Errorf("%w: the page's revision is before the record's (r)", ErrFormat)
	}
	v.digest = d
	return fmt.Sprintf("names this record: %s at revision %d in stream %s", d.Op, d.Revision, p.Audience), nil
}

func (v *verification) signature() (string, error) {
	if err := v.check(v.rec.JWS, v.recKey); err != nil {
		return "", err
	}
	v.authentic = true
	return "the record is signed by " + v.recKey, nil
}

func (v *verification) deadline() (string, error) {
	if !v.digest.Live() {
		return "the registration has ended", errNotShown
	}
	x := time.Unix(v.digest.Deadline, 0).UTC()
	v.report.Subject.Deadline = x
	if !v.opts.Now.Before(x) {
		return "", fmt.Errorf("%w: at %s", ErrExpired, x.Format(time.RFC3339))
	}
	return fmt.Sprintf("good until %s", x.Format(time.RFC3339)), nil
}
