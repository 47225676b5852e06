package doctor

import (
	"archive/tar"
	"bytes"
	"compress/gzip"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"text/tabwriter"
	"time"

	apiclient "github.com/roster-mesh/roster/api/client"
	"github.com/roster-mesh/roster/node/config"
)

// A Part is one file of a support archive, or one that could not be made.
type Part struct {
	Name    string `json:"name"`
	Bytes   int    `json:"bytes"`
	Content string `json:"content"`
	Problem string `json:"problem,omitempty"` // the reason why it is missing or incomplete

	text []byte
}

// archiveDir is the directory in a support archive that has its files.
const archiveDir = "roster-support"

// maxPart bounds the bytes of a part, so that an archive with its parts takes less than 64 MiB of
// memory and disk.
const maxPart = 4 << 20

// WriteArchive diagnoses a node, running or not, and writes a support archive to w: the findings and
// the state of the node in files that people can read (tar, gzip). Private keys, tokens, and the
// names and documents of agents are left out; of a log file they are removed as far as they have a
// known form. If operator is nil, the files that only an operator can get are missing. logFile is
// the file with the node's log; it may be empty. WriteArchive returns the parts, the missing ones too.
func WriteArchive(
	ctx context.Context, w io.Writer, cfg config.Config, operator *apiclient.Client, logFile string,
) ([]Part, error) {
	a := archive{diagnosis: newDiagnosis(cfg, operator), logFile: logFile}
	a.hidesNames = true
	a.run(ctx)
	a.collect(ctx)

	if err := ctx.Err(); err != nil {
		return nil, err
	}

	return a.parts, a.write(w)
}

// An archive collects the parts of a support archive.
type archive struct {
	*diagnosis
	logFile string
	parts   []Part
}

// errCut marks a part of which only the allowed size is kept.
var errCut = fmt.Errorf("cut to %d bytes", maxPart)

// collect makes all parts. A source that can't be read is a problem of its part alone.
func (a *archive) collect(ctx context.Context) {
	for _, part := range []struct {
		name, content string
		read          func(context.Context) ([]byte, error)
	}{
		{"doctor.txt", "findings of roster doctor, without names of agents", a.findingsText},
		{"program.txt", "version of the program that wrote this archive, and the machine", programText},
		{"config.yaml", "configuration of the file, with all defaults", a.configText},
		{"certificates.txt", "certificates of the node, the domain and its peers, without keys", a.certificatesText},
		{"files.txt", "names, modes, sizes and times of the files in the data directory", a.filesText},
		{"readyz.txt", "answer of /readyz", a.readyText},
		{"metrics.txt", "answer of /metrics", a.metricsText},
		{"goroutines.txt", "goroutines of the node by stack, without values", a.goroutinesText},
		{"status.json", "state of the node", a.nodeStatus},
		{"raft.json", "Raft members, versions in force and quotas", a.raftStatus},
		{"peers.json", "peerings and their lag", a.peerStatus},
		{"audit.txt", "end of the audit log: times, actions and outcomes, without names", a.auditText},
		{"log.txt", "end of the node's log", a.logText},
	} {
		text, err := part.read(ctx)
		a.add(part.name, part.content, text, err)
	}
}

// add takes a text without its secrets as a part, or the error for which it is missing.
func (a *archive) add(name, content string, text []byte, err error) {
	// Secrets are removed before the cut, which could leave a part of one that no form matches.
	text = withoutSecrets(text)
	if len(text) > maxPart {
		text = text[:maxPart]
		err = errors.Join(err, errCut)
	}

	part := Part{Name: name, Bytes: len(text), Content: content, text: text}
	if err != nil {
		part.Problem = string(withoutSecrets([]byte(err.Error())))
	}

	a.parts = append(a.parts, part)
}

// write writes the archive. Its first file describes the others.
func (a *archive) write(w io.Writer) error {
	pack := gzip.NewWriter(w)
	files := tar.NewWriter(pack)

	about := a.about()
	for _, part := range append([]Part{{Name: "README.txt", Bytes: len(about), text: about}}, a.parts...) {
		if part.text == nil {
			continue
		}

		header := &tar.Header{Typeflag: tar.TypeReg, Name: archiveDir + "/" + part.Name, Mode: 0o600,
			Size: int64(part.Bytes), ModTime: a.now.Truncate(time.Second)}
		if err := files.WriteHeader(header); err != nil {
			return err
		}

		if _, err := files.Write(part.text); err != nil {
			return err
		}
	}

	return errors.Join(files.Close(), pack.Close())
}

// about returns the text that describes the archive.
func (a *archive) about() []byte {
	var text bytes.Buffer

	subject := "a node of " + a.cfg.TrustDomain.Name()
	if a.svid != nil {
		subject = a.svid.ID.String()
	}

	fmt.Fprintf(&text, `Support archive of %s, written at %s by roster doctor --bundle.

It has no private keys, tokens, secrets of invitations or idempotency keys, no documents or names
of agents, and of the audit log no identities. config.yaml, peers.json and doctor.txt name members,
peers, paths and addresses. log.txt is what the node logged, after secrets of a known form were
removed: it can name callers. Read the files before you give them away.

`, subject, a.now.UTC().Format(time.RFC3339))

	table := tabwriter.NewWriter(&text, 0, 0, 2, ' ', 0)
	for _, part := range a.parts {
		if part.Problem == "" {
			fmt.Fprintf(table, "%s\t%s\n", part.Name, part.Content)
		} else {
			fmt.Fprintf(table, "%s\t%s; missing or incomplete: %s\n", part.Name, part.Content, part.Problem)
		}
	}

	_ = table.Flush() // to memory

	return text.Bytes()
}

// findingsText returns the findings as text.
func (a *archive) findingsText(context.Context) ([]byte, error) {
	var text bytes.Buffer
	for _, finding := range a.findings {
		fmt.Fprintf(&text, "%-8s %s: %s\n", finding.Status, finding.Check, finding.Found)

		if finding.Do != "" {
			fmt.Fprintf(&text, "         do: %s\n", finding.Do)
		}
	}

	return text.Bytes(), nil
}

// errNoOperator is the reason why the answers to operators are missing.
var errNoOperator = errors.New("only operators may read this; give --cert and --key of an operator")

func (a *archive) nodeStatus(ctx context.Context) ([]byte, error) {
	return a.ask(ctx, func(ctx context.Context, operator *apiclient.Operator) (any, error) {
		status, _, err := operator.Node(ctx)
		return status, err
	})
}

func (a *archive) raftStatus(ctx context.Context) ([]byte, error) {
	return a.ask(ctx, func(ctx context.Context, operator *apiclient.Operator) (any, error) {
		status, _, err := operator.Raft(ctx)
		return status, err
	})
}

func (a *archive) peerStatus(ctx context.Context) ([]byte, error) {
	return a.ask(ctx, func(ctx context.Context, operator *apiclient.Operator) (any, error) {
		peers, _, err := operator.Peers(ctx)
		return peers, err
	})
}

// ask returns the answer to a question of an operator as indented JSON.
func (a *archive) ask(
	ctx context.Context, question func(context.Context, *apiclient.Operator) (any, error),
) ([]byte, error) {
	if a.operator == nil {
		return nil, errNoOperator
	}

	ctx, cancel := context.WithTimeout(ctx, askBound)
	defer cancel()

	answer, err := question(ctx, a.operator.Operator())
	if err != nil {
		return nil, err
	}

	text, err := json.MarshalIndent(answer, "", "  ")

	return append(text, '\n'), err
}
