package workload

import (
	"crypto/x509"
	"errors"
	"fmt"
	"maps"

	"github.com/go-jose/go-jose/v4"
	"github.com/spiffe/go-spiffe/v2/bundle/jwtbundle"
	"github.com/spiffe/go-spiffe/v2/bundle/x509bundle"
	"github.com/spiffe/go-spiffe/v2/exp/bundle/witbundle"
	"github.com/spiffe/go-spiffe/v2/exp/svid/witsvid"
	"github.com/spiffe/go-spiffe/v2/spiffeid"
	"github.com/spiffe/go-spiffe/v2/svid/jwtsvid"
	"github.com/spiffe/go-spiffe/v2/svid/x509svid"
	"google.golang.org/protobuf/encoding/protowire"
)

// An X509Update is one response of the X.509-SVID profile.
type X509Update struct {
	SVIDs   []*x509svid.SVID // at least one; the first is the default identity
	Bundles *x509bundle.Set  // of the SVIDs' domains and of the federated ones
}

// fields calls visit for each field of a message in order. It skips all but those of
// wire type 2 (a string, bytes, a message or an entry of a map), since no other is read.
func fields(message []byte, visit func(number protowire.Number, value []byte) error) error {
	for len(message) > 0 {
		number, kind, size := protowire.ConsumeTag(message)
		if size < 0 {
			return protowire.ParseError(size)
		}

		message = message[size:]

		if kind != protowire.BytesType {
			if size = protowire.ConsumeFieldValue(number, kind, message); size < 0 {
				return protowire.ParseError(size)
			}

			message = message[size:]

			continue
		}

		value, size := protowire.ConsumeBytes(message)
		if size < 0 {
			return protowire.ParseError(size)
		}

		if err := visit(number, value); err != nil {
			return err
		}

		message = message[size:]
	}

	return nil
}

// record reads a message into a slice with one value for each field number below size.
func record(message []byte, size int) ([][]byte, error) {
	values := make([][]byte, size)
	err := fields(message, func(number protowire.Number, value []byte) error {
		if int(number) < size {
			values[number] = value
		}

		return nil
	})

	return values, err
}

// decodeBundles reads the map<string, bytes> of one field; the keys are trust domains.
func decodeBundles(message []byte, of protowire.Number) (map[spiffeid.TrustDomain][]byte, error) {
	bundles := map[spiffeid.TrustDomain][]byte{}
	err := fields(message, func(number protowire.Number, value []byte) error {
		if number != of {
			return nil
		}

		entry, err := record(value, 3)
		if err != nil {
			return err
		}

		td, err := spiffeid.TrustDomainFromString(string(entry[1]))
		if err != nil {
			return err
		}

		bundles[td] = entry[2]

		return nil
	})

	return bundles, err
}

// eachSVID calls add for the messages of field 1, each split into its fields, of which
// hint is one. A hint that was used before is a second choice, which is left out
// (SPIFFE Workload API, 5.2.1).
func eachSVID(message []byte, hint int, add func(svid [][]byte) error) error {
	hints := map[string]bool{}

	return fields(message, func(number protowire.Number, value []byte) error {
		if number != 1 {
			return nil
		}

		svid, err := record(value, hint+1)
		if err != nil {
			return err
		}

		text := string(svid[hint])
		if text != "" && hints[text] {
			return nil
		}

		hints[text] = true

		return add(svid)
	})
}

// parseX509 parses an X509SVIDResponse.
func parseX509(message []byte) (*X509Update, error) {
	update := &X509Update{}
	own := map[spiffeid.TrustDomain][]byte{}

	err := eachSVID(message, 5, func(raw [][]byte) error {
		svid, err := x509svid.ParseRaw(raw[2], raw[3])
		if err != nil {
			return err
		}

		svid.Hint = string(raw[5])
		update.SVIDs = append(update.SVIDs, svid)

		// The ID that the message names, not the certificate's, is the bundle's key.
		td, err := spiffeid.TrustDomainFromString(string(raw[1]))
		own[td] = raw[4]

		return err
	})
	if err != nil {
		return nil, err
	}

	if len(update.SVIDs) == 0 {
		return nil, errors.New("the response has no SVID")
	}

	// A federated bundle that names an own domain wins, as in go-spiffe.
	federated, err := decodeBundles(message, 3)
	if err != nil {
		return nil, err
	}

	maps.Copy(own, federated)

	bundles := make([]*x509bundle.Bundle, 0, len(own))

	for td, der := range own {
		authorities, err := x509.ParseCertificates(der)
		if err != nil {
			return nil, fmt.Errorf("bundle of %s: %w", td, err)
		}

		bundles = append(bundles, x509bundle.FromX509Authorities(td, authorities))
	}

	update.Bundles = x509bundle.NewSet(bundles...)

	return update, nil
}

// parseJWTBundles parses a JWTBundlesResponse.
func parseJWTBundles(message []byte) (*jwtbundle.Set, error) {
	all, err := decodeBundles(message, 1)
	if err != nil {
		return nil, err
	}

	set := jwtbundle.NewSet()

	for td, jwks := range all {
		bundle, err := jwtbundle.Parse(td, jwks)
		if err != nil {
			return nil, fmt.Errorf("bundle of %s: %w", td, err)
		}

		set.Add(bundle)
	}

	return set, nil
}

// parseWITBundles parses a WITBundlesResponse.
func parseWITBundles(message []byte) (*witbundle.Set, error) {
	all, err := decodeBundles(message, 1)
	if err != nil {
		return nil, err
	}

	set := witbundle.NewSet()

	for td, jwks := range all {
		bundle, err := witbundle.Parse(td, jwks)
		if err != nil {
			return nil, fmt.Errorf("bundle of %s: %w", td, err)
		}

		set.Add(bundle)
	}

	return set, nil
}

// parseJWTSVID parses the first JWT-SVID of a JWTSVIDResponse.
func parseJWTSVID(message []byte, audience string) (first *jwtsvid.SVID, err error) {
	err = eachSVID(message, 3, func(raw [][]byte) (err error) {
		if first == nil {
			first, err = jwtsvid.ParseInsecure(string(raw[2]), []string{audience})
		}

		return err
	})
	if err == nil && first == nil {
		err = errors.New("the response has no JWT-SVID")
	}

	return first, err
}

// parseWITSVID parses the first WIT-SVID of a WITSVIDResponse.
func parseWITSVID(message []byte) (first *witsvid.SVID, err error) {
	err = eachSVID(message, 4, func(raw [][]byte) (err error) {
		if first == nil {
			first, err = parseWIT(string(raw[2]), raw[3])
		}

		return err
	})
	if err == nil && first == nil {
		err = errors.New("the response has no WIT-SVID")
	}

	return first, err
}

func parseWIT(token string, key []byte) (*witsvid.SVID, error) {
	svid, err := witsvid.ParseInsecure(token)
	if err != nil {
		return nil, err
	}

	var jwk jose.JSONWebKey
	if err := jwk.UnmarshalJSON(key); err != nil {
		return nil, fmt.Errorf("private key of the WIT-SVID: %w", err)
	}

	if jwk.IsPublic() {
		return nil, errors.New("the key of the WIT-SVID is not a private key")
	}

	svid.PrivateKey = jwk.Key

	return svid, nil
}

// encode returns a message of string fields, each a number and its value.
func encode(values ...field) []byte {
	var message []byte
	for _, f := range values {
		message = protowire.AppendTag(message, f.number, protowire.BytesType)
		message = protowire.AppendString(message, f.value)
	}

	return message
}

type field struct {
	number protowire.Number
	value  string
}
