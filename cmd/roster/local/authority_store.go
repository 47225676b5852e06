package local

import (
	"crypto/x509"
	"encoding/json"
	"encoding/pem"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"time"

	"github.com/spiffe/go-spiffe/v2/spiffeid"

	"github.com/roster-mesh/roster/directory/durable"
	"github.com/roster-mesh/roster/trust"
)

// The files of a directory with an authority.
const (
	authorityCertFile = "ca.pem"
	authorityKeyFile  = "ca.key"
	issuedFile        = "issued.json"
	lockFile          = "lock"
)

// DefaultLifetime is the lifetime of an SVID without --lifetime, and maxLifetime the longest one.
const (
	DefaultLifetime = 72 * time.Hour
	maxLifetime     = 30 * 24 * time.Hour
)

// outgrown is the number of identities from which SPIRE, which attests each workload, is
// less work than files.
const outgrown = 25

// A Store is an authority in a directory: its certificate, its key, and the list of the
// identities that it issued.
type Store struct {
	dir    string
	ca     *trust.CA
	issued []Identity
	lock   *os.File
}

// An Identity is an X.509-SVID that an authority issued into files.
type Identity struct {
	SPIFFEID string   `json:"spiffe_id"`
	Cert     string   `json:"cert"` // absolute path
	Key      string   `json:"key"`
	Hosts    []string `json:"hosts,omitempty"` // DNS names and IP addresses in the certificate
	Lifetime string   `json:"lifetime"`
	Expires  string   `json:"expires"` // RFC 3339
}

// A Request describes an SVID to issue.
type Request struct {
	Path     string   // of the SPIFFE ID, such as /roster/node/a
	Hosts    []string // DNS names and IP addresses that the certificate names
	Cert     string   // file for the certificate
	Key      string   // file for its private key, mode 0600
	Lifetime time.Duration
	Replace  bool // an earlier SVID of the same ID in these files
}

// Create makes an authority in dir. It refuses a directory that has one.
func Create(dir string, td spiffeid.TrustDomain) (*Store, error) {
	if err := os.MkdirAll(dir, 0o700); err != nil {
		return nil, err
	}

	store := &Store{dir: dir}

	// The lock comes before the look, so that the second of two processes finds the files of the first.
	if err := store.acquire(); err != nil {
		return nil, err
	}

	for _, name := range []string{authorityCertFile, authorityKeyFile} {
		if _, err := os.Lstat(store.path(name)); !errors.Is(err, fs.ErrNotExist) {
			store.Close()
			return nil, fmt.Errorf("%s exists: an authority is never overwritten", store.path(name))
		}
	}

	var err error
	if store.ca, err = trust.NewCA(td, time.Now()); err == nil {
		cert, key := store.ca.PEM()

		// The key is written first, because Open takes a directory with a certificate for an authority.
		err = errors.Join(durable.WriteFile(store.path(authorityKeyFile), key, 0o600),
			durable.WriteFile(store.path(authorityCertFile), cert, 0o644))
	}

	if err != nil {
		store.Close()
		return nil, err
	}

	return store, nil
}

// Open opens the authority in dir. Only one process at a time has it open.
func Open(dir string) (*Store, error) {
	cert, err := os.ReadFile(filepath.Join(dir, authorityCertFile))
	if err != nil {
		return nil, err
	}

	key, err := os.ReadFile(filepath.Join(dir, authorityKeyFile))
	if err != nil {
		return nil, err
	}

	store := &Store{dir: dir}
	if store.ca, err = trust.LoadCA(cert, key); err != nil {
		return nil, fmt.Errorf("%s: %w", dir, err)
	}

	// The key and the certificate never change, but the list is read under the lock.
	if err := store.acquire(); err != nil {
		return nil, err
	}

	// An authority that has issued no SVID has no list.
	list, err := os.ReadFile(store.path(issuedFile))
	if err == nil {
		err = json.Unmarshal(list, &store.issued)
	}

	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		store.Close()
		return nil, fmt.Errorf("%s: %w", store.path(issuedFile), err)
	}

	return store, nil
}

// acquire waits until no other process has the authority open.
func (s *Store) acquire() (err error) {
	s.lock, err = os.OpenFile(s.path(lockFile), os.O_CREATE|os.O_RDWR, 0o600)
	if err != nil {
		return err
	}

	return syscall.Flock(int(s.lock.Fd()), syscall.LOCK_EX)
}

// Close lets other processes open the authority.
func (s *Store) Close() { _ = s.lock.Close() }

func (s *Store) path(name string) string { return filepath.Join(s.dir, name) }

// TrustDomain returns the domain that the authority certifies.
func (s *Store) TrustDomain() spiffeid.TrustDomain { return s.ca.TrustDomain() }

// Bundle returns the authority's certificate, PEM.
func (s *Store) Bundle() []byte {
	cert, _ := s.ca.PEM()
	return cert
}

// Outgrown reports whether the authority has issued so many identities that the domain
// should move to SPIRE.
func (s *Store) Outgrown() bool { return len(s.issued) >= outgrown }

// ID returns the SPIFFE ID of a path, with or without its leading slash, or checks a whole one.
func (s *Store) ID(path string) (spiffeid.ID, error) {
	if strings.HasPrefix(path, "spiffe://") {
		id, err := spiffeid.FromString(path)
		if err == nil && !id.MemberOf(s.TrustDomain()) {
			err = fmt.Errorf("the authority is of %s", s.TrustDomain().Name())
		}

		return id, err
	}

	return spiffeid.FromPath(s.TrustDomain(), "/"+strings.TrimPrefix(path, "/"))
}

// Issue makes a key and an SVID and writes them into files. It replaces nothing but, if asked, an
// earlier SVID of the same ID; otherwise the error is an existsError.
func (s *Store) Issue(request Request) (Identity, error) {
	id, err := spiffeid.FromPath(s.TrustDomain(), request.Path)
	if err != nil {
		return Identity{}, fmt.Errorf("invalid path %q: %w", request.Path, err)
	}

	// Renewals run in other directories, so the list has absolute paths.
	cert, err1 := filepath.Abs(request.Cert)

	key, err2 := filepath.Abs(request.Key)
	if err := errors.Join(err1, err2); err != nil {
		return Identity{}, err
	}

	issued := Identity{SPIFFEID: id.String(), Cert: cert, Key: key, Hosts: request.Hosts,
		Lifetime: request.Lifetime.String()}

	if err := issued.mayWriteFiles(request.Replace); err != nil {
		return Identity{}, err
	}

	if err := s.write(&issued, request.Lifetime); err != nil {
		return Identity{}, err
	}

	// The files have one entry in the list, so that a renewal writes them once.
	s.issued = slices.DeleteFunc(s.issued, func(other Identity) bool { return other.Cert == issued.Cert })
	s.issued = append(s.issued, issued)

	return issued, s.save()
}

// mayWriteFiles refuses to overwrite anything but, if replace is true, an earlier SVID of this ID.
func (i *Identity) mayWriteFiles(replace bool) error {
	id, expires, err := readCertificate(i.Cert)

	switch {
	case errors.Is(err, fs.ErrNotExist):
		// A key without its certificate may still be in use, so it is not replaced.
		if _, err := os.Lstat(i.Key); !errors.Is(err, fs.ErrNotExist) {
			return &existsError{text: fmt.Sprintf("%s exists, and %s does not", i.Key, i.Cert)}
		}

		return nil
	case err != nil:
		return err
	case id != i.SPIFFEID:
		return &existsError{text: fmt.Sprintf("%s is the certificate of %s", i.Cert, id)}
	case !replace:
		return &existsError{sameID: true, text: fmt.Sprintf("%s is a certificate of this identity, which expires at %s",
			i.Cert, expires.UTC().Format(time.RFC3339))}
	}

	return nil
}

// An existsError refuses to overwrite a file.
type existsError struct {
	text   string
	sameID bool // it is an SVID of the same ID, which may be replaced
}

func (e *existsError) Error() string { return e.text }

// write issues the SVID and replaces its files.
func (s *Store) write(identity *Identity, lifetime time.Duration) error {
	id, err := spiffeid.FromString(identity.SPIFFEID)
	if err != nil {
		return err
	}

	svid, err := s.ca.IssueFor(id.Path(), identity.Hosts, lifetime, time.Now())
	if err != nil {
		return err
	}

	identity.Expires = svid.Certificates[0].NotAfter.UTC().Format(time.RFC3339)

	if err := os.MkdirAll(filepath.Dir(identity.Cert), 0o750); err != nil {
		return err
	}

	return trust.WriteSVID(svid, identity.Cert, identity.Key)
}

// Renew issues SVIDs again: all that have less than half of their lifetime left, or every
// one. Files that were removed are left alone and forgotten. An SVID that can't be renewed is among
// the failed, and stops no other.
func (s *Store) Renew(everything bool) (renewed []Identity, failed []error, err error) {
	var kept []Identity
	for _, identity := range s.issued {
		// The certificate in the file counts, because the list may be older.
		id, expires, err := readCertificate(identity.Cert)
		if errors.Is(err, fs.ErrNotExist) {
			continue
		}

		// A file that has another identity by now is not overwritten.
		if err == nil && id != identity.SPIFFEID {
			err = fmt.Errorf("%s is the certificate of %s", identity.Cert, id)
		}

		lifetime, err2 := time.ParseDuration(identity.Lifetime)
		err = errors.Join(err, err2)
		isDue := err == nil && (everything || time.Until(expires) < lifetime/2)

		if isDue {
			err = s.write(&identity, lifetime)
		}

		switch {
		case err != nil:
			failed = append(failed, fmt.Errorf("%s: %w", identity.SPIFFEID, err))
		case isDue:
			renewed = append(renewed, identity)
		}

		kept = append(kept, identity)
	}

	s.issued = kept

	return renewed, failed, s.save()
}

func (s *Store) save() error {
	list, err := json.MarshalIndent(s.issued, "", "  ")
	if err != nil {
		return err
	}

	return durable.WriteFile(s.path(issuedFile), append(list, '\n'), 0o600)
}

// readCertificate returns the SPIFFE ID and the expiry of the first certificate in a PEM
// file.
func readCertificate(file string) (id string, expires time.Time, err error) {
	text, err := os.ReadFile(file)
	if err != nil {
		return "", time.Time{}, err
	}

	block, _ := pem.Decode(text)
	if block == nil {
		return "", time.Time{}, fmt.Errorf("%s is not a PEM file", file)
	}

	cert, err := x509.ParseCertificate(block.Bytes)
	if err != nil {
		return "", time.Time{}, fmt.Errorf("%s: %w", file, err)
	}

	// A certificate with several URIs is no SVID; joined, they equal no SPIFFE ID.
	var names []string
	for _, uri := range cert.URIs {
		names = append(names, uri.String())
	}

	return strings.Join(names, " "), cert.NotAfter, nil
}
