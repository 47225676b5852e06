package trust

import (
	"crypto"
	"crypto/x509"
	"encoding/pem"
	"errors"
	"os"
	"path/filepath"
)

// WriteFile replaces a file whole. The contents are on disk when it returns.
func WriteFile(file string, data []byte, mode os.FileMode) (err error) {
	dir := filepath.Dir(file)

	// The temporary file is in the same directory, because a rename is atomic within one file system only.
	f, err := os.CreateTemp(dir, "."+filepath.Base(file)+"-*")
	if err != nil {
		return err
	}

	defer func() {
		if err != nil {
			_ = os.Remove(f.Name())
		}
	}()

	_, err = f.Write(data)

	// Without the sync, the rename could reach the disk before the data, and a power failure leave an empty file.
	if err = errors.Join(err, f.Chmod(mode), f.Sync(), f.Close()); err != nil {
		return err
	}

	return rename(f.Name(), file)
}

// rename gives a file another name in its directory, on disk when it returns.
func rename(from, to string) error {
	if err := os.Rename(from, to); err != nil {
		return err
	}

	// The rename survives a power failure only once the directory is synced as well.
	d, err := os.Open(filepath.Dir(to))
	if err != nil {
		return err
	}

	return errors.Join(d.Sync(), d.Close())
}

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
