package directory

import (
	"fmt"
	"net/url"

	"github.com/spiffe/go-spiffe/v2/spiffeid"
)

// Authentication of a bundle endpoint (SPIFFE Federation, 5.2).
const (
	ProfileWeb    = "https_web"    // by a certificate of the web's PKI
	ProfileSPIFFE = "https_spiffe" // by an X.509-SVID
)

// maxEndpoint bounds a bundle endpoint's URL in bytes.
const maxEndpoint = 2048

// A BundleEndpoint is the URL from which a trust domain's bundle is refreshed (SPIFFE
// Federation, 5). The zero value is no endpoint.
type BundleEndpoint struct {
	URL     string `json:"url" yaml:"url" cbor:"1,keyasint"`
	Profile string `json:"profile" yaml:"profile" cbor:"2,keyasint"`
	// ID is the SPIFFE ID of an endpoint of ProfileSPIFFE; zero accepts any node of the
	// domain.
	ID spiffeid.ID `json:"id,omitzero" yaml:"id" cbor:"3,keyasint,omitzero"`
}

// IsZero reports whether there is no endpoint.
func (e BundleEndpoint) IsZero() bool { return e == BundleEndpoint{} }

// Check refuses an invalid endpoint; the zero value is valid.
func (e BundleEndpoint) Check() error {
	if e.IsZero() {
		return nil
	}

	u, err := url.Parse(e.URL)
	switch {
	case err != nil || u.Scheme != "https" || u.Host == "" || u.User != nil || u.Fragment != "" ||
		len(e.URL) > maxEndpoint:
		return fmt.Errorf("the bundle endpoint %.200q must be an https URL of at most %d bytes", e.URL, maxEndpoint)
	case e.Profile != ProfileWeb && e.Profile != ProfileSPIFFE:
		return fmt.Errorf("the bundle endpoint's profile %.40q is neither %s nor %s", e.Profile, ProfileSPIFFE,
			ProfileWeb)
	case e.Profile == ProfileWeb && !e.ID.IsZero():
		return fmt.Errorf("a bundle endpoint of profile %s has no SPIFFE ID", ProfileWeb)
	}

	return nil
}
