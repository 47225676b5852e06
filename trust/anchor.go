package trust

import (
	"bytes"
	"crypto/x509"
	"errors"
	"fmt"
	"net/url"
	"slices"
	"strings"

	"github.com/spiffe/go-spiffe/v2/bundle/spiffebundle"
	"github.com/spiffe/go-spiffe/v2/bundle/x509bundle"
	"github.com/spiffe/go-spiffe/v2/spiffeid"

	"github.com/roster-mesh/roster/directory/signed"
	"github.com/roster-mesh/roster/trust/compact"
)

// An Anchor is the basis of a verdict. The verifier chooses it, never the file: a file's
// own bundle shows only that the file agrees with itself (threats.md, S13).
type Anchor string

// The anchors that a verdict can have.
const (
	AnchorNone      Anchor = "none"
	AnchorBundle    Anchor = "bundle"    // a trust bundle of the verifier
	AnchorKeys      Anchor = "keys"      // a key document that the verifier pinned
	AnchorDirectory Anchor = "directory" // the answer of a directory over an authenticated connection
)

// ErrNoAnchor means that no anchor was given by which a file could be judged.
var ErrNoAnchor = errors.New("no trust anchor")

// A DirectoryWord is the trust data that a directory, as the anchor of a record, has of
// the record's domain.
type DirectoryWord struct {
	Address      string   `json:"address"`
	Authorities  int      `json:"authorities"`  // CA certificates of the domain
	Fingerprints []string `json:"fingerprints"` // of these, as Fingerprints returns them
	KeyDocument  string   `json:"key_document"` // EPOCH.SEQ
}

// Parts of a file that Verify can leave unchecked, as Report.Unchecked names them.
const (
	UncheckedLayout     = "layout"                // white space, order of members and escapes of the file's JSON
	UncheckedBundle     = "bundle"                // the file's own
	UncheckedKeys       = "keys"                  // the file's own, since others were given
	UncheckedExt        = "ext"                   // which no signature covers
	UncheckedSignatures = "checkpoint.signatures" // by keys of neither the key document nor the policy
	// UncheckedAttestation is the attestation of a file, since a key document was given.
	UncheckedAttestation = "attestation"
)

// leaveUnchecked notes that a part of the file has no influence on the verdict.
func (v *verification) leaveUnchecked(part string) {
	if !slices.Contains(v.report.Unchecked, part) {
		v.report.Unchecked = append(v.report.Unchecked, part)
	}
}

// anchor chooses the anchor of the verdict among those that the verifier gave.
func (v *verification) anchor() (string, error) {
	// Judge sets no options: the node's own bundles are its only anchor.
	if v.bundles != nil {
		return v.anchorInStore()
	}

	// The given key document comes first, because a bundle judges the attestations that this document holds.
	if err := v.takeGivenKeys(); err != nil {
		return "", err
	}

	// A connection's bundle that names another domain says nothing of this file, so the next anchor decides.
	switch {
	case v.opts.Bundle != nil && (!v.opts.OfConnection || namesDomain(v.opts.Bundle, v.issuer)):
		return v.anchorInBundle()
	case v.opts.Keys != "":
		return v.anchorInKeys()
	case v.opts.Directory != "" && v.ownBundle != nil && v.keys != nil:
		return v.anchorInDirectory()
	case v.opts.Bundle != nil:
		return "", fmt.Errorf("%w for %s: the bundle of the connection has no CA certificate of it, "+
			"and the file's own bundle shows only that the file agrees with itself", ErrNoAnchor, v.issuer)
	}

	return "", fmt.Errorf("%w was chosen: the file's own bundle shows only that the file agrees with itself, "+
		"not who made it", ErrNoAnchor)
}

// anchorInStore takes the bundles of a directory, which judges for itself.
func (v *verification) anchorInStore() (string, error) {
	held, err := v.bundles.GetX509BundleForTrustDomain(v.issuer)
	if err != nil {
		return "", fmt.Errorf("%w: %w", ErrKey, err)
	}

	v.authorities = held

	return v.anchored(AnchorBundle, "the bundle that is held here")
}

// takeGivenKeys replaces the file's key document by the verifier's.
func (v *verification) takeGivenKeys() error {
	if v.opts.Keys == "" {
		return nil
	}

	if v.keysText != "" && v.keysText != v.opts.Keys {
		v.leaveUnchecked(UncheckedKeys)
	}

	// The given document takes the place of the file's attestation as well.
	if v.attested {
		v.leaveUnchecked(UncheckedAttestation)
		v.attested = false
	}

	if err := v.readKeys(v.opts.Keys); err != nil {
		return err
	}

	// Otherwise the keys of one domain could vouch for the records of another.
	if v.keys.Issuer != v.issuer {
		return fmt.Errorf("%w: the key document is of %s and the file of %s", ErrKey, v.keys.Issuer, v.issuer)
	}

	return nil
}

func (v *verification) anchorInBundle() (string, error) {
	given := v.opts.Bundle
	if td := given.TrustDomain(); !td.IsZero() && td != v.issuer {
		return "", fmt.Errorf("%w: the bundle is of %s and the file of %s", ErrKey, td, v.issuer)
	}

	if err := v.believe(given); err != nil {
		return "", err
	}

	if v.ownBundle != nil {
		v.leaveUnchecked(UncheckedBundle)
	}

	// A record names its key and nothing else; a bundle judges a key by the
	// attestations that a key document holds.
	if v.bare && v.opts.Keys == "" {
		return "", fmt.Errorf("%w: a bare record holds no key document; "+
			"give one of the domain (--keys) as well, or verify the record's proof file", ErrKey)
	}

	if v.opts.Held {
		return v.anchored(AnchorDirectory, "the bundle of %s that this directory holds; CA certificates in it: %d",
			v.issuer, v.certificates())
	}

	if !namesDomain(given, v.issuer) {
		return v.anchored(AnchorBundle, "the bundle that was given; its %d CA certificates name no domain: "+
			"that they belong to %s is your own claim", v.certificates(), v.issuer)
	}

	return v.anchored(AnchorBundle, "the bundle that was given; CA certificates of %s in it: %d",
		v.issuer, v.certificates())
}

// anchorInKeys takes the pinned key document as the anchor. Its signature is checked by
// its own keys: that shows that it is complete, and not its author.
func (v *verification) anchorInKeys() (string, error) {
	key, err := v.keys.Key(v.keysKey)
	if err != nil {
		return "", fmt.Errorf("%w: the pinned key document is signed by %s: %w", ErrKey, v.keysKey, err)
	}

	if err := compact.VerifyOwn(v.keysText, key.Public); err != nil {
		return "", fmt.Errorf("the pinned key document: %w", err)
	}

	if v.ownBundle != nil {
		v.leaveUnchecked(UncheckedBundle)
	}

	v.pinned = true

	return v.anchored(AnchorKeys, "the pinned key document %d.%d of %s", v.keys.Epoch, v.keys.Seq, v.issuer)
}

// anchorInDirectory rests on the bundle that a directory put into its answer.
func (v *verification) anchorInDirectory() (string, error) {
	// The connection authenticates the file's own bundle here; from any other source it would show nothing.
	held, err := ParseBundle(v.issuer, v.ownBundle)
	if err != nil {
		return "", fmt.Errorf("%w: the bundle in the directory's answer: %w", ErrKey, err)
	}

	if err := v.believe(held); err != nil {
		return "", err
	}

	fingerprints, err := Fingerprints(v.issuer, v.ownBundle)
	if err != nil {
		return "", fmt.Errorf("%w: the bundle in the directory's answer: %w", ErrKey, err)
	}

	v.report.Directory = &DirectoryWord{
		Address: v.opts.Directory, Authorities: v.certificates(), Fingerprints: fingerprints,
		KeyDocument: fmt.Sprintf("%d.%d", v.keys.Epoch, v.keys.Seq),
	}

	return v.anchored(AnchorDirectory,
		"the answer of %s, with the fingerprints of the CA of %s (%s) and its key document %s",
		v.opts.Directory, v.issuer, strings.Join(fingerprints, ", "), v.report.Directory.KeyDocument)
}

func (v *verification) anchored(anchor Anchor, format string, args ...any) (string, error) {
	v.report.Anchor = anchor

	return fmt.Sprintf(format, args...), nil
}

// believe takes the authorities of a bundle that may certify IDs of the file's domain.
func (v *verification) believe(bundle *spiffebundle.Bundle) error {
	authorities := slices.DeleteFunc(bundle.X509Authorities(), func(a *x509.Certificate) bool {
		return !speaksFor(a, v.issuer)
	})
	if len(authorities) == 0 {
		return fmt.Errorf("%w: the bundle has no CA certificate of %s", ErrKey, v.issuer)
	}

	v.authorities = x509bundle.FromX509Authorities(v.issuer, authorities)

	return nil
}

func (v *verification) certificates() int { return len(v.authorities.X509Authorities()) }

// namesDomain reports whether an authority of the bundle has a SPIFFE ID of td. A
// bundle that only certifies a directory's connection need not have one.
func namesDomain(bundle *spiffebundle.Bundle, td spiffeid.TrustDomain) bool {
	return slices.ContainsFunc(bundle.X509Authorities(), func(a *x509.Certificate) bool {
		isSPIFFE := func(u *url.URL) bool { return u.Scheme == "spiffe" }
		return slices.ContainsFunc(a.URIs, isSPIFFE) && speaksFor(a, td)
	})
}

// readKeys parses a key document and checks no signature.
func (v *verification) readKeys(text string) error {
	jws, kid, err := compact.ParseOwn(text, signed.TypeKeys, compact.MaxSize)
	if err != nil {
		return fmt.Errorf("%w: the key document: %w", ErrFormat, err)
	}

	doc, err := signed.ParseKeyDocument(jws.Payload)
	if err != nil {
		return malformed("the key document", err)
	}

	if err := checkLimits(doc); err != nil {
		return fmt.Errorf("%w: %w", ErrFormat, err)
	}

	v.keysText = text
	v.keysKey = kid
	v.keys = doc

	return nil
}

// readAttestation takes the key that the file's attestation names as the only one of its
// domain. Whether the attestation holds is judged as for a key of a key document.
func (v *verification) readAttestation(text string) error {
	jws, err := compact.Parse(text, signed.TypeAttestation, maxAttestation, "alg", "typ", "x5c")
	if err != nil {
		return fmt.Errorf("%w: the attestation: %w", ErrFormat, err)
	}

	attestation, err := parseAttestation(jws.Payload)
	if err != nil {
		return malformed("the attestation", err)
	}

	key := signed.SigningKey{Public: attestation.public, Node: attestation.node, Attestations: []string{text}}
	v.keys = &signed.KeyDocument{Issuer: attestation.node.TrustDomain(), Keys: []signed.SigningKey{key}}
	v.attested = true

	return nil
}

// checkLayout reports the layout of a file's JSON as unchecked, unless it is one of the
// two that encode returns. The contents of the members are checked; their formatting is
// not.
func (v *verification) checkLayout(encodings ...[]byte) {
	text := bytes.TrimSuffix(v.input, []byte("\n"))
	for _, known := range encodings {
		if bytes.Equal(text, bytes.TrimSuffix(known, []byte("\n"))) {
			return
		}
	}

	v.leaveUnchecked(UncheckedLayout)
}
