package trust

import (
	"crypto/ed25519"
	"crypto/rand"
	"crypto/x509"
	"encoding/pem"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"

	"github.com/roster-mesh/roster/directory/durable"
	"github.com/roster-mesh/roster/directory/signed"
	"github.com/roster-mesh/roster/trust/compact"
)

// keyFile is the path of a node's signing key, below its data folder.
const keyFile = "signing.key"

// A Key is a node's Ed25519 signing key. It is made on the node and never
// leaves it.
type Key struct {
	private ed25519.PrivateKey
	id      string
}

// OpenKey returns the signing key that is kept in dir, and makes one if there is none:
// PKCS#8 in PEM, readable by the node alone, on disk before it is used.
func OpenKey(dir string) (*Key, error) {
	file := filepath.Join(dir, keyFile)

	text, err := os.ReadFile(file)
	if errors.Is(err, fs.ErrNotExist) {
		return makeKey(file)
	}

	if err != nil {
		return nil, fmt.Errorf("read the signing key: %w", err)
	}

	signer, err := ParseKey(text)
	if err != nil {
		return nil, fmt.Errorf("read the signing key %s: %w", file, err)
	}

	private, ok := signer.(ed25519.PrivateKey)
	if !ok {
		return nil, fmt.Errorf("read the signing key %s: not an Ed25519 key", file)
	}

	return newKey(private), nil
}

// A NextKey is a key that will be the node's once the domain has it.
type NextKey struct {
	*Key
	dir string
}

// MakeNextKey makes the key that will follow the one in dir. That one stays in use
// until Use is called.
func MakeNextKey(dir string) (*NextKey, error) {
	k, err := makeKey(filepath.Join(dir, keyFile+".next"))
	return &NextKey{k, dir}, err
}

// Use replaces the former key by the next one, on disk.
func (k *NextKey) Use() (*Key, error) {
	file := filepath.Join(k.dir, keyFile)
	if err := durable.Rename(file+".next", file); err != nil {
		return nil, fmt.Errorf("keep the signing key: %w", err)
	}

	return k.Key, nil
}

func makeKey(file string) (*Key, error) {
	_, private, err := ed25519.GenerateKey(rand.Reader)
	if err != nil {
		return nil, err
	}

	der, err := x509.MarshalPKCS8PrivateKey(private)
	if err != nil {
		return nil, err
	}

	text := pem.EncodeToMemory(&pem.Block{Type: "PRIVATE KEY", Bytes: der})
	if err := durable.WriteFile(file, text, 0o600); err != nil {
		return nil, fmt.Errorf("keep the signing key: %w", err)
	}

	return newKey(private), nil
}

func newKey(private ed25519.PrivateKey) *Key {
	return &Key{private, signed.KeyID(private.Public().(ed25519.PublicKey))}
}

// ID returns the key's RFC 7638 thumbprint.
func (k *Key) ID() string { return k.id }

// Public returns the public half.
func (k *Key) Public() ed25519.PublicKey { return k.private.Public().(ed25519.PublicKey) }

func (k *Key) sign(typ string, payload []byte) (string, error) {
	return compact.Sign(k.private, k.id, typ, payload)
}
