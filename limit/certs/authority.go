package certs

import (
	"crypto/x509"
	"errors"
	"strings"
)

// An authorityError says in the words of this program that no CA of a bundle signed a chain.
type authorityError struct {
	err      error
	sameName bool // the bundle has a CA with the issuer's name
}

func (e *authorityError) Error() string {
	if e.sameName {
		return "no CA in the bundle signed it; one there has the issuer's name and another key, " +
			"so it is of another authority, or of one that was replaced"
	}

	return "no CA in the bundle signed it"
}

func (e *authorityError) Unwrap() error { return e.err }

// ExplainAuthority returns the error of a chain's verification. If no CA of the bundle signed the
// chain, it says so, and whether a CA with the issuer's name is there.
func ExplainAuthority(err error) error {
	var unknown x509.UnknownAuthorityError
	if !errors.As(err, &unknown) {
		return err
	}

	// x509 tells of such a CA in the text alone.
	return &authorityError{err, strings.Contains(unknown.Error(), "candidate authority certificate")}
}
