// Package release verifies the files of a release of Roster: their hashes by the list
// SHA256SUMS, and the list by its Ed25519 signature, SHA256SUMS.sig. Both are in the formats
// of sha256sum and of openssl pkeyutl, so that either can be checked without this program.
package release

import (
	"bufio"
	"bytes"
	"crypto/ed25519"
	"crypto/sha256"
	"crypto/x509"
	"encoding/hex"
	"encoding/pem"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"slices"
	"strings"
)

// The files of a release beside those that it lists.
const (
	SumsFile      = "SHA256SUMS"
	SignatureFile = "SHA256SUMS.sig"
	// VersionFile holds the version and the revision, a line. It is among the listed files, so
	// that an older release can't pass for a newer one.
	VersionFile = "VERSION"
)

// Limits on the files that are read before a signature is verified.
const (
	maxKey  = 4 << 10
	maxSums = 64 << 10
	maxText = 256 // of VERSION
)

// Errors of a release that differs from the signed one.
var (
	ErrSignature = errors.New("the signature of " + SumsFile + " is not valid for this key")
	ErrSums      = errors.New(SumsFile + " is malformed")
	ErrMismatch  = errors.New("its SHA-256 hash is not the signed one")
	ErrUnlisted  = errors.New("it is not part of the release")
)

// Key is the public key that signs releases.
type Key struct{ public ed25519.PublicKey }

// ReadKey reads a public key of Ed25519 from a PEM file (PKIX, RFC 8410).
func ReadKey(path string) (Key, error) {
	text, err := readUpTo(path, maxKey)
	if err != nil {
		return Key{}, err
	}

	block, _ := pem.Decode(text)

	// A private key in this place has another type, and is refused.
	if block == nil || block.Type != "PUBLIC KEY" {
		return Key{}, fmt.Errorf("%s holds no public key in PEM", path)
	}

	parsed, err := x509.ParsePKIXPublicKey(block.Bytes)
	if err != nil {
		return Key{}, fmt.Errorf("%s: %w", path, err)
	}

	public, ok := parsed.(ed25519.PublicKey)
	if !ok {
		return Key{}, fmt.Errorf("%s holds a key that is not of Ed25519", path)
	}

	return Key{public}, nil
}

// Fingerprint returns the SHA-256 hash of the key in DER (PKIX), in hexadecimal digits.
func (k Key) Fingerprint() string {
	der, err := x509.MarshalPKIXPublicKey(k.public)
	if err != nil {
		panic(err) // a key of Ed25519 is always encoded
	}

	hash := sha256.Sum256(der)

	return hex.EncodeToString(hash[:])
}

// Sums are the hashes that a release lists, by file name.
type Sums map[string][sha256.Size]byte

// Open reads the list of a release in a directory and verifies its signature.
func (k Key) Open(dir string) (Sums, error) {
	list, err := readUpTo(filepath.Join(dir, SumsFile), maxSums)
	if err != nil {
		return nil, err
	}

	signature, err := readUpTo(filepath.Join(dir, SignatureFile), ed25519.SignatureSize)
	if err != nil {
		return nil, err
	}

	if len(signature) != ed25519.SignatureSize || !ed25519.Verify(k.public, list, signature) {
		return nil, ErrSignature
	}

	return parseSums(list)
}

// parseSums parses lines of sha256sum: 64 hexadecimal digits, two blanks, the name.
func parseSums(list []byte) (Sums, error) {
	sums := Sums{}
	lines := bufio.NewScanner(bytes.NewReader(list))

	for lines.Scan() {
		digits, name, found := strings.Cut(lines.Text(), "  ")
		hash, err := hex.DecodeString(digits)

		// Even a signed list names files of its own directory only.
		if !found || err != nil || len(hash) != sha256.Size || !isPlain(name) {
			return nil, fmt.Errorf("%w: line %.64q", ErrSums, lines.Text())
		}

		// With two hashes for one name, it would be open which of them counts.
		if _, again := sums[name]; again {
			return nil, fmt.Errorf("%w: two lines for %.64q", ErrSums, name)
		}

		sums[name] = [sha256.Size]byte(hash)
	}

	if len(sums) == 0 {
		return nil, fmt.Errorf("%w: it lists no file", ErrSums)
	}

	return sums, lines.Err()
}

// isPlain reports whether a name is one of a file in the directory itself.
func isPlain(name string) bool {
	return filepath.IsLocal(name) && name == filepath.Base(name) && !strings.ContainsAny(name, "\\\x00")
}

// Names returns the listed files in order.
func (s Sums) Names() []string {
	names := make([]string, 0, len(s))
	for name := range s {
		names = append(names, name)
	}

	slices.Sort(names)

	return names
}

// Verify compares a file of a directory with its hash in the list.
func (s Sums) Verify(dir, name string) error {
	want, ok := s[name]
	if !ok {
		return ErrUnlisted
	}

	f, err := os.Open(filepath.Join(dir, name))
	if err != nil {
		return err
	}
	defer f.Close()

	hash := sha256.New()
	if _, err := io.Copy(hash, f); err != nil {
		return err
	}

	if !bytes.Equal(hash.Sum(nil), want[:]) {
		return ErrMismatch
	}

	return nil
}

// Version returns the version that a release states. The list is verified, and must list the
// file.
func (s Sums) Version(dir string) (string, error) {
	text, err := readUpTo(filepath.Join(dir, VersionFile), maxText)
	if err != nil {
		return "", err
	}

	if want, ok := s[VersionFile]; !ok || sha256.Sum256(text) != want {
		return "", fmt.Errorf("%s: %w", VersionFile, ErrMismatch)
	}

	return strings.TrimSpace(string(text)), nil
}

// readUpTo reads a file of at most size bytes.
func readUpTo(path string, size int) ([]byte, error) {
	f, err := os.Open(path)
	if err != nil {
		return nil, err
	}
	defer f.Close()

	text, err := io.ReadAll(io.LimitReader(f, int64(size)+1))
	if err == nil && len(text) > size {
		err = fmt.Errorf("%s is larger than %d bytes", path, size)
	}

	return text, err
}
