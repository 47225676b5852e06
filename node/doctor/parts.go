package doctor

import (
	"bytes"
	"context"
	"crypto/sha256"
	"crypto/x509"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"runtime"
	"runtime/debug"
	"time"

	"github.com/spiffe/go-spiffe/v2/spiffeid"

	"github.com/roster-mesh/roster/directory"
	"github.com/roster-mesh/roster/trust/audit"
)

// Bounds of the parts of a support archive, beside maxPart.
const (
	maxFiles = 2000    // that are listed
	maxLog   = 1 << 20 // bytes of the end of a log
	maxAudit = 1 << 20
)

// programText describes this program and its machine.
func programText(context.Context) ([]byte, error) {
	var text bytes.Buffer
	fmt.Fprintf(&text, "system %s/%s, processors %d, Go %s\n", runtime.GOOS, runtime.GOARCH, runtime.NumCPU(),
		runtime.Version())

	info, ok := debug.ReadBuildInfo()
	if !ok {
		return text.Bytes(), errors.New("the program has no build information")
	}

	fmt.Fprintf(&text, "%s\n", info)

	return text.Bytes(), nil
}

// configText returns the configuration. Secrets in URLs are removed as in each part.
func (a *archive) configText(context.Context) ([]byte, error) { return a.cfg.Text() }

// certificatesText describes all certificates that the diagnosis has found.
func (a *archive) certificatesText(context.Context) ([]byte, error) {
	var (
		text    bytes.Buffer
		missing error
	)

	describe := func(holder string, certificates []*x509.Certificate) {
		for _, certificate := range certificates {
			fmt.Fprintf(&text, "%s\n  subject %s %s\n  issuer %s\n  serial %x, %s\n  from %s until %s\n  sha256 %x\n",
				holder, certificate.Subject, certificate.URIs, certificate.Issuer, certificate.SerialNumber,
				certificate.PublicKeyAlgorithm, certificate.NotBefore.UTC().Format(time.RFC3339),
				certificate.NotAfter.UTC().Format(time.RFC3339), sha256.Sum256(certificate.Raw))
		}
	}

	if a.svid != nil {
		describe("node", a.svid.Certificates)
	} else {
		missing = errors.New("the node's SVID can't be read; see doctor.txt")
	}

	if a.gatewaySVID != nil {
		describe("gateway", a.gatewaySVID.Certificates)
	}

	domains := []spiffeid.TrustDomain{a.cfg.TrustDomain}
	for _, peer := range a.peers {
		domains = append(domains, peer.Domain)
	}

	for _, domain := range domains {
		if bundle, err := a.bundles.GetX509BundleForTrustDomain(domain); err == nil {
			describe("bundle of "+domain.Name(), bundle.X509Authorities())
		}
	}

	return text.Bytes(), missing
}

// filesText lists the data directory.
func (a *archive) filesText(ctx context.Context) ([]byte, error) {
	var (
		text     bytes.Buffer
		problems error
	)

	listed := 0
	err := filepath.WalkDir(a.cfg.Data, func(path string, entry fs.DirEntry, err error) error {
		if err != nil {
			// A folder that can't be read must not hide the others.
			problems = errors.Join(problems, err)
			return nil
		}

		if listed++; listed > maxFiles || ctx.Err() != nil {
			problems = errors.Join(problems, fmt.Errorf("only %d files are listed", maxFiles))
			return fs.SkipAll
		}

		info, err := entry.Info()
		if err != nil {
			return nil // it was removed meanwhile
		}

		fmt.Fprintf(&text, "%s %12d %s %s\n", info.Mode(), info.Size(), info.ModTime().UTC().Format(time.RFC3339), path)

		return nil
	})

	return text.Bytes(), errors.Join(err, problems)
}

func (a *archive) readyText(ctx context.Context) ([]byte, error) {
	return a.fetch(ctx, a.admin, "http://"+a.cfg.Listen.Admin+"/readyz")
}

func (a *archive) metricsText(ctx context.Context) ([]byte, error) {
	return a.fetch(ctx, a.admin, "http://"+a.cfg.Listen.Admin+"/metrics")
}

// goroutinesText asks the socket for profiles, which only the node's account may open.
func (a *archive) goroutinesText(ctx context.Context) ([]byte, error) {
	dial := func(ctx context.Context, _, _ string) (net.Conn, error) {
		return (&net.Dialer{}).DialContext(ctx, "unix", a.cfg.DebugSocket())
	}
	client := &http.Client{Transport: &http.Transport{DialContext: dial, DisableKeepAlives: true}}

	return a.fetch(ctx, client, "http://localhost/debug/pprof/goroutine?debug=1")
}

// fetch returns the beginning of an answer, with its status if that is not 200.
func (a *archive) fetch(ctx context.Context, client *http.Client, url string) ([]byte, error) {
	ctx, cancel := context.WithTimeout(ctx, askBound)
	defer cancel()

	req, err := http.NewRequestWithContext(ctx, http.MethodGet, url, nil)
	if err != nil {
		return nil, err
	}

	resp, err := client.Do(req)
	if err != nil {
		return nil, err
	}
	defer resp.Body.Close()

	// One byte over the bound has add note that the answer was cut.
	text, err := io.ReadAll(io.LimitReader(resp.Body, maxPart+1))
	if resp.StatusCode != http.StatusOK {
		text = append([]byte(resp.Status+"\n"), text...)
	}

	return text, err
}

// auditText returns the end of the audit log. A line has no names of agents and no identities: an
// agent may be visible to few, and the node's operator finds each line by its number.
func (a *archive) auditText(context.Context) ([]byte, error) {
	end, err := endOf(filepath.Join(a.cfg.Data, "audit.jsonl"), maxAudit)

	var text []byte

	for line := range bytes.Lines(end) {
		entry, err := audit.ParseEntry(line)
		if err != nil {
			text = append(text, "not a line of an audit log\n"...)
			continue
		}

		text = append(append(text, auditLine(&entry)...), '\n')
	}

	return text, err
}

// auditLine returns the members of a line that identify no caller and no agent.
func auditLine(entry *audit.Entry) []byte {
	line, err := json.Marshal(struct {
		Time     time.Time `json:"time"`
		Number   uint64    `json:"n"`
		Phase    string    `json:"phase"`
		Action   string    `json:"action,omitempty"`
		Outcome  string    `json:"outcome,omitempty"`
		Revision string    `json:"revision,omitempty"`
		Count    uint64    `json:"count,omitempty"`
		Reason   string    `json:"reason,omitempty"`
	}{entry.Time, entry.Number, entry.Phase, entry.Action, entry.Outcome, entry.Revision, entry.Count, entry.Reason})
	if err != nil {
		return []byte(err.Error())
	}

	return line
}

// logText returns the end of the file with the node's log.
func (a *archive) logText(context.Context) ([]byte, error) {
	if a.logFile == "" {
		return nil, errors.New("the node logs to its standard error; give the file with its log by --log")
	}

	text, err := endOf(a.logFile, maxLog)

	return printable(text), err
}

// printable returns a text in which control characters but tab and line feed are escaped, so that a
// terminal doesn't act on them.
func printable(text []byte) []byte {
	var safe bytes.Buffer

	for _, r := range string(text) {
		if directory.IsUnseen(r) && r != '\n' && r != '\t' {
			fmt.Fprintf(&safe, "\\u%04x", r)
			continue
		}

		safe.WriteRune(r)
	}

	return safe.Bytes()
}

// endOf returns the last lines of a file, limit bytes at most, and an error if there are more.
func endOf(path string, limit int64) ([]byte, error) {
	// Opening a FIFO waits for its writer, so the kind of the file is checked first.
	info, err := os.Stat(path)
	if err != nil {
		return nil, err
	}

	if !info.Mode().IsRegular() {
		return nil, fmt.Errorf("%s is not a regular file", path)
	}

	file, err := os.Open(path)
	if err != nil {
		return nil, err
	}
	defer file.Close()

	from := max(0, info.Size()-limit)
	text, err := io.ReadAll(io.NewSectionReader(file, from, limit))

	// The first line is the rest of one.
	if from > 0 {
		_, text, _ = bytes.Cut(text, []byte("\n"))
		err = errors.Join(err, fmt.Errorf("only the last %d bytes", len(text)))
	}

	return text, err
}
