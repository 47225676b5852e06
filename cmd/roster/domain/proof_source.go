package domain

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io/fs"
	"net/url"
	"os"
	"slices"
	"strings"

	apiclient "github.com/roster-mesh/roster/api/client"
	"github.com/roster-mesh/roster/cmd/roster/cli"
	"github.com/roster-mesh/roster/cmd/roster/connect"
	"github.com/roster-mesh/roster/directory"
	"github.com/roster-mesh/roster/trust"
)

// A proofSource finds the text to verify: a file, or the proof of a registration.
type proofSource struct {
	session  *connect.Session
	argument string // file, URL, name or rid
	origin   string // domain of a registration; empty for any
}

// A proofInput is the text to verify and the registration that it must be about.
type proofInput struct {
	text      []byte
	directory string // URL of the directory that sent it; empty for a file
	name      string // asked for by name; may be empty
	rid       string // asked for by rid; may be empty
	origin    string // asked for by domain; may be empty
}

// checkSubject refuses a proof of another registration than the one asked for. Its
// signatures are valid, but it doesn't answer the question.
func (in *proofInput) checkSubject(report *trust.Report) error {
	got := report.Subject

	differs := func(asked, answered string) bool { return asked != "" && asked != answered }
	if differs(in.rid, got.RID) || differs(in.name, got.Agent) || differs(in.origin, got.Domain) {
		err := fmt.Errorf("%w: %s sent the proof of another registration: %s (%s) of %s",
			trust.ErrFormat, in.directory, got.Agent, got.RID, got.Domain)
		report.Authentic, report.Verdict = false, "not authentic: "+err.Error()

		return err
	}

	return nil
}

// setSubject sets the registration that is asked for, by rid or name.
func (in *proofInput) setSubject(id string) {
	if rid, err := directory.ParseRID(id); err == nil {
		in.rid = rid.String()
		return
	}

	in.name = id
	if name, err := directory.ParseName(id); err == nil {
		in.name = name
	}
}

// read reads a file or, if there is no file of that name, fetches a registration's proof.
func (p proofSource) read(ctx context.Context) (*proofInput, error) {
	switch {
	case p.isURL():
		path, err := p.registrationPath()
		if err != nil {
			return nil, err
		}

		return p.fetch(ctx, path)

	case p.isRegistration():
		return p.fetchRegistration(ctx)
	}

	text, err := p.session.ReadFile(p.argument, trust.MaxProof+1)

	return &proofInput{text: text}, err
}

// isURL reports whether the argument is the URL of a registration. Another URL is one only if
// no directory was given whose registration can have it as its name.
func (p proofSource) isURL() bool {
	if !strings.HasPrefix(p.argument, "https://") && !strings.HasPrefix(p.argument, "http://") {
		return false
	}

	target, err := url.Parse(p.argument)

	return err != nil || p.session.Address() == "" || target.User != nil ||
		strings.HasPrefix(target.EscapedPath(), "/ad/r/")
}

// isRegistration reports whether the argument is a name or rid. An argument that exists as
// a file, is - or has the form of a path is a file.
func (p proofSource) isRegistration() bool {
	isPath := func(prefix string) bool { return strings.HasPrefix(p.argument, prefix) }
	if p.argument == "-" || slices.ContainsFunc([]string{"/", "./", "../"}, isPath) {
		return false
	}

	_, err := os.Lstat(p.argument)

	return errors.Is(err, fs.ErrNotExist)
}

// fetchRegistration fetches the proof of the registration that the argument names.
func (p proofSource) fetchRegistration(ctx context.Context) (*proofInput, error) {
	if p.session.Address() == "" {
		return nil, cli.Failed(cli.ExitFailed,
			"no file %s, and no directory address to look up the registration of that name", p.argument).
			WithHint("Give --address https://HOST[:PORT] or set ROSTER_ADDRESS.")
	}

	client, err := p.session.Client()
	if err != nil {
		return nil, err
	}

	in, err := p.fetchNamed(ctx, client)
	if err != nil {
		if cli.FailureOf(err).Code == cli.ExitNotFound {
			p.session.Note("No file %s.", p.argument)
		}

		return nil, err
	}

	p.session.Note("No file %s; verifying the registration of that name.", p.argument)

	// The path can contain the rid that a lookup found; the argument is the question.
	in.setSubject(p.argument)
	in.origin = cmp.Or(in.origin, p.origin)

	return in, nil
}

// fetchNamed fetches the proof of the registration with the argument as its name or rid.
func (p proofSource) fetchNamed(ctx context.Context, client *apiclient.Client) (*proofInput, error) {
	path, err := connect.Locate(ctx, client, p.argument, p.origin, apiclient.ReadOptions{})
	if err != nil {
		return nil, connect.SuggestLookup(ctx, p.session, err, p.argument)
	}

	return p.fetch(ctx, path)
}

// registrationPath returns the path of the registration at a URL. The URL must be of the
// directory in use, because client certificate and tokens are meant for that one only.
func (p proofSource) registrationPath() (string, error) {
	target, err := url.Parse(p.argument)
	if err != nil || !isRegistrationURL(target) {
		return "", cli.Usage("%q is not the URL of a registration", p.argument).
			WithHint("It must be https://HOST/ad/r/RID or https://HOST/ad/r/DOMAIN/RID. " +
				"Save other documents to a file, and verify the file.")
	}

	// Without a directory, that of the URL is asked, but a token is never sent to it.
	if p.session.Address() == "" {
		if p.session.HasToken() {
			return "", cli.Usage("no directory address for your token").
				WithHint("Your token is sent only to the directory that --address (or ROSTER_ADDRESS) names.")
		}

		p.session.SetFallback("https://"+target.Host, "")
	}

	base, err := p.session.BaseURL()
	if err != nil {
		return "", err
	}

	if base != "https://"+target.Host {
		return "", cli.Usage("%s is at another directory than --address %s", p.argument, base).
			WithHint("Your certificate and tokens are sent only to that directory; give --address https://%s.",
				target.Host)
	}

	path := strings.TrimSuffix(target.EscapedPath(), "/proof")

	// The proof has the record, and also the parts that verify it.
	return strings.TrimSuffix(path, "/record"), nil
}

func isRegistrationURL(u *url.URL) bool {
	return u.Scheme == "https" && u.Host != "" && u.User == nil && u.RawQuery == "" && u.Fragment == "" &&
		strings.HasPrefix(u.EscapedPath(), "/ad/r/")
}

// fetch fetches the proof of the registration at a path, /ad/r/ID or /ad/r/DOMAIN/ID.
func (p proofSource) fetch(ctx context.Context, path string) (*proofInput, error) {
	in := new(proofInput)

	segments := strings.Split(strings.TrimPrefix(path, "/ad/r/"), "/")

	// checkSubject compares the segments with the proof, which has them unescaped.
	for i, segment := range segments {
		text, err := url.PathUnescape(segment)
		if err != nil || len(segments) > 2 {
			return nil, cli.Usage("%q is not the path of a registration", path)
		}

		segments[i] = text
	}

	if len(segments) == 2 {
		in.origin = segments[0]
	}

	id := segments[len(segments)-1]
	in.setSubject(id)

	client, err := p.session.Client()
	if err != nil {
		return nil, err
	}

	reply, err := client.Proof(ctx, path)
	if err != nil {
		return nil, connect.SuggestLookup(ctx, p.session, err, id)
	}

	in.text = reply.Body
	in.directory, err = p.session.BaseURL()

	return in, err
}
