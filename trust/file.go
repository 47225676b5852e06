package trust

import (
	"crypto"
	"crypto/x509"
	"encoding/pem"
	"errors"
)

// parseCertificates reads all certificates of a PEM text, and nothing else.
func parseCertificates(data []byte) ([]*x509.Certificate, error) {
	var certs []*x509.Certificate
	for {
		block, rest := pem.Decode(data)
		if block == nil {
			break
		}

		if block.Type != "CERTIFICATE" {
			return nil, errors.New("the PEM text holds a " + block.Type + " where certificates are expected")
		}

		cert, err := x509.ParseCertificate(block.Bytes)
		if err != nil {
			return nil, err
		}

		certs, data = append(certs, cert), rest
	}

	if len(certs) == 0 {
		return nil, errors.New("the PEM text holds no certificate")
	}

	return certs, nil
}

// ParseKey reads one private key in PKCS#8 that can sign.
func ParseKey(b []byte) (crypto.Signer, error) {
	block, _ := pem.Decode(b)
	if block == nil || block.Type != "PRIVATE KEY" {
		return nil, errors.New("not a private key in PKCS#8")
	}

	key, err := x509.ParsePKCS8PrivateKey(block.Bytes)
	if err != nil {
		return nil, err
	}

	signer, ok := key.(crypto.Signer)
	if !ok {
		return nil, errors.New("the private key can't sign")
	}

	return signer, nil
}
