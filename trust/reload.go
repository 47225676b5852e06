package trust

import (
	"errors"
	"fmt"
	"time"

	"github.com/spiffe/go-spiffe/v2/spiffeid"
	"github.com/spiffe/go-spiffe/v2/svid/x509svid"
)

// Follow takes the bundle of s's domain from a file into b, and has Run keep it as
// the file has it.
func (s *Source) Follow(bundles *Bundles, file string) error {
	td := s.SVID().ID.TrustDomain()

	jwks, err := readBundle(td, file)
	if err != nil {
		return err
	}

	s.bundles, s.bundleFile = bundles, file

	return bundles.Set(td, jwks)
}

// Trouble returns the error of the last read of the files, or of the Workload API; nil
// if it succeeded.
func (s *Source) Trouble() error {
	if s.api != nil {
		return s.api.Err()
	}

	s.mu.RLock()
	defer s.mu.RUnlock()

	return s.trouble
}

// reload swaps to the files' present contents, and reports which of them are new.
func (s *Source) reload() (svid, bundle bool, err error) {
	defer func() {
		s.mu.Lock()
		defer s.mu.Unlock()
		s.trouble = err
	}()

	// Both are read although one may fail: a broken bundle's file must not delay a renewed SVID.
	next, svidErr := s.nextSVID()
	jwks, bundleErr := s.nextBundle()

	err = errors.Join(svidErr, bundleErr)
	if s.bundleFile == "" {
		if next != nil {
			s.Set(next)
		}

		return next != nil, false, err
	}

	if next == nil && jwks == nil {
		return false, false, err
	}

	svid, bundle, unfit := s.fitting(next, jwks)

	td := s.SVID().ID.TrustDomain()
	if bundle {
		if set := s.bundles.Set(td, jwks); set != nil { // before the SVID, for its verifiers
			return false, false, errors.Join(err, set)
		}
	}

	if svid {
		s.Set(next)
	}

	return svid, bundle, errors.Join(err, unfit)
}

// fitting reports which of a new SVID and a new bundle, nil for none, may be taken. The
// bundle in use must certify the SVID in use, because otherwise this domain's members
// would no longer trust this node.
func (s *Source) fitting(next *x509svid.SVID, jwks []byte) (svid, bundle bool, err error) {
	td := s.SVID().ID.TrustDomain()

	held, err := s.bundles.JWKS(td)
	if err != nil {
		return false, false, err
	}

	// A domain that replaces its authority replaces both files, which only fit each other.
	switch {
	case next != nil && jwks != nil && certifies(td, jwks, next):
		return true, true, nil
	case next != nil && certifies(td, held, next):
		svid = true
	case jwks != nil && certifies(td, jwks, s.SVID()):
		bundle = true
	}

	if next != nil && !svid {
		err = errors.New("the bundle does not certify the SVID of the files")
	}

	if jwks != nil && !bundle {
		err = errors.Join(err, fmt.Errorf("%s: it does not certify the node's SVID", s.bundleFile))
	}

	return svid, bundle, err
}

// certifies reports whether a bundle's authorities certify an SVID. One that has
// ended is judged as of its last second: that is no fault of the bundle's.
func certifies(td spiffeid.TrustDomain, jwks []byte, svid *x509svid.SVID) bool {
	tried := NewBundles()
	if tried.Set(td, jwks) != nil {
		return false
	}

	at := time.Now()
	if end := svid.Certificates[0].NotAfter; !at.Before(end) {
		at = end.Add(-time.Second)
	}

	_, err := verifyChain(svid.Certificates, tried, forClient, at)

	return err == nil
}

// nextSVID returns the SVID of the files; nil if it is the one in use.
func (s *Source) nextSVID() (*x509svid.SVID, error) {
	if s.certFile == "" {
		return nil, nil
	}

	next, err := x509svid.Load(s.certFile, s.keyFile)
	if err != nil {
		return nil, err
	}

	now := s.SVID()
	switch {
	case next.ID != now.ID:
		return nil, errOtherID
	case next.Certificates[0].Equal(now.Certificates[0]):
		return nil, nil
	case !time.Now().Before(next.Certificates[0].NotAfter):
		// The SVID in use may hold longer than the one of the files.
		return nil, errSpent
	}

	return next, nil
}

// nextBundle returns the bundle of the file; nil if it is the one in use.
func (s *Source) nextBundle() ([]byte, error) {
	if s.bundleFile == "" {
		return nil, nil
	}

	td := s.SVID().ID.TrustDomain()

	jwks, err := readBundle(td, s.bundleFile)
	if err != nil {
		return nil, err
	}

	if held, err := s.bundles.JWKS(td); err == nil && string(held) == string(jwks) {
		return nil, nil
	}

	return jwks, nil
}
