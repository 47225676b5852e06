package main

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"net/url"
	"os"
	"path/filepath"
	"strings"
	"time"

	"github.com/spf13/cobra"
	"github.com/spiffe/go-spiffe/v2/spiffeid"

	apiclient "github.com/roster-mesh/roster/api/client"
	"github.com/roster-mesh/roster/directory"
	"github.com/roster-mesh/roster/trust"
)

const verifyHelp = `Verify a proof file, a bare record, or evidence that a domain contradicted itself, and
print each step, or the one that failed and why. FILE (- is standard input) is verified
without a network; of a URL or a registration the proof is fetched from the directory.

You choose what the verdict rests on, its anchor, and the result names it:

  bundle     --bundle FILE: the domain's CA certificates, PEM or a SPIFFE bundle; also
             ROSTER_BUNDLE and the context's, for the domains that they name
  keys       --keys FILE: a key document of the domain that you pinned. With a bundle it
             is judged by that, and takes the place of the file's key document. A proof
             file that you verified holds one, as its member keys
  directory  without these, what the directory holds that answers over TLS

Without an anchor nothing is authentic (exit code 12): the bundle in a file shows only
that the file agrees with itself. A bare record needs --keys, since it holds no key
document. Parts of a file that have no influence are listed as not checked.

--at judges as of an earlier time: deadlines, and for a bare record the key document,
its attestations and certificates. In a proof file these are judged as of its page.

With --agent it fetches what an agent says of itself at its base (its A2A card, its
Web of Agents document, or what its MCP server says), from here and not by the
directory, and shows in what that differs from its registration.

Exit codes: 10 signature or format, 11 evidence that holds, 12 key, identity or no
anchor, 13 inclusion, 14 expired; of an agent 1 where it says something else, 6 where
nothing is to be had.`

// verifyFlags are what the verifier chose besides the connection's flags.
type verifyFlags struct {
	agent  string
	origin string
	keys   string
	at     string
}

func (a *app) verifyCommand() *cobra.Command {
	f := &fetching{app: a}
	var flags verifyFlags
	c := &cobra.Command{
		Use:   "verify FILE | URL | NAME|RID | --agent NAME|RID",
		Short: "Verify a proof file or a record, or compare an agent with its registration",
		Long:  verifyHelp,
		Example: "  curl -K DIR/curlrc -o proof.json https://127.0.0.1:8400/ad/r/RID/proof\n" +
			"  roster verify proof.json --bundle DIR/alpha.test/bundle.pem",
		Args: func(c *cobra.Command, args []string) error {
			if flags.agent != "" {
				return needs()(c, args)
			}
			return needs("FILE")(c, args)
		},
		RunE: func(c *cobra.Command, args []string) error {
			if flags.agent != "" {
				return a.verifyAgent(c.Context(), f, flags.agent, flags.origin)
			}
			return a.verify(c.Context(), args[0], flags)
		},
	}
	c.Flags().StringVar(&flags.agent, "agent", "", "an agent, by name or rid, to ask what it is")
	c.Flags().StringVar(&flags.origin, "origin", "", "of an agent or a registration: the domain that registered it")
	c.Flags().StringVar(&flags.keys, "keys", "", "file of a key document that you pinned (compact JWS)")
	c.Flags().StringVar(&flags.at, "at", "", "judge lifetimes as of this time (RFC 3339) instead of now")
	f.flags(c)

	return c
}

func (a *app) verify(ctx context.Context, what string, flags verifyFlags) error {
	opts, err := flags.options(a)
	if err != nil {
		return err
	}
	in, err := a.verifyInput(ctx, what, flags.origin)
	if err != nil {
		return err
	}
	opts.Directory = in.directory
	if err := a.addBundle(&opts); err != nil {
		return err
	}

	report, failure := trust.Verify(in.text, opts)
	if failure == nil {
		failure = in.checkSubject(report)
	}
	if bundle, from := a.settingFrom("bundle"); report.Anchor == trust.AnchorBundle && from != "flag" {
		a.note("The bundle is %s, from the %s.", bundle, from)
	}
	if err := a.printOwn(report, "steps", verdictTable(report)); err != nil {
		return err
	}

	switch {
	case errors.Is(failure, trust.ErrEquivocation):
		return failed(trust.ExitCode(failure), "%s holds: %s contradicts itself", what, report.Subject.Domain).
			because("It signed two things that no honest domain can have signed both: the steps above say which.")
	case errors.Is(failure, trust.ErrNoAnchor):
		return failed(trust.ExitCode(failure), "%s is not shown to be authentic: %w", what, failure).
			because("Give the CA certificates of %s (--bundle FILE) or a key document of it (--keys FILE), "+
				"from a source that you trust.", report.Subject.Domain)
	case failure != nil:
		return failed(trust.ExitCode(failure), "%s does not hold: %w", what, failure)
	}

	return nil
}

// options returns what the flags of verify itself say.
func (flags verifyFlags) options(a *app) (opts trust.VerifyOptions, err error) {
	if flags.at != "" {
		if opts.At, err = time.Parse(time.RFC3339, flags.at); err != nil {
			return opts, usage("--at %q is not a time", flags.at).because("Write it as RFC 3339 does: 2026-01-31T12:00:00Z.")
		}
	}
	if flags.keys != "" {
		text, err := a.readFile(flags.keys, trust.MaxJWS+1)
		if err != nil {
			return opts, err
		}
		opts.Keys = strings.TrimSpace(string(text))
		if opts.Keys == "" {
			return opts, failed(exitFormat, "the key document %s is empty", flags.keys)
		}
	}

	return opts, a.choose()
}

// addBundle adds the bundle of the flag, the environment or the context. That of the
// flag is an anchor for a file whatever it names; the others were chosen for connections.
func (a *app) addBundle(opts *trust.VerifyOptions) error {
	bundle, from := a.settingFrom("bundle")
	if bundle == "" {
		return nil
	}
	text, err := os.ReadFile(bundle)
	if err != nil {
		return failed(exitFailed, "the bundle can't be read: %w", err)
	}
	if opts.Bundle, err = trust.ParseBundle(spiffeid.TrustDomain{}, text); err != nil {
		return failed(exitFormat, "the bundle %s can't be used: %w", bundle, err)
	}
	opts.OfConnection = from != "flag" || opts.Directory != ""

	return nil
}

// An evidenceInput is what verify judges: a file, or what a directory answered.
type evidenceInput struct {
	text      []byte
	directory string // its URL; empty of a file
	name, rid string // of the registration that was asked for; one is empty
	origin    string // its domain, if that was asked for
}

// checkSubject refuses a proof of another registration than the one that was asked
// for: the signatures in it hold, and it answers another question.
func (in *evidenceInput) checkSubject(report *trust.Report) error {
	got := report.Subject
	differs := func(asked, answered string) bool { return asked != "" && asked != answered }
	if differs(in.rid, got.RID) || differs(in.name, got.Agent) || differs(in.origin, got.Domain) {
		report.Authentic = false
		return fmt.Errorf("%w: %s answered with the proof of another registration: %s (%s) of %s",
			trust.ErrFormat, in.directory, got.Agent, got.RID, got.Domain)
	}

	return nil
}

// verifyInput reads a file or, where there is none of that name, fetches the proof of
// a registration.
func (a *app) verifyInput(ctx context.Context, what, origin string) (*evidenceInput, error) {
	if strings.HasPrefix(what, "https://") || strings.HasPrefix(what, "http://") {
		path, err := a.registrationURL(what)
		if err != nil {
			return nil, err
		}
		return a.fetchProof(ctx, path)
	}
	if what != "-" && a.namesRegistration(what) {
		client, err := a.client()
		if err != nil {
			return nil, err
		}
		a.note("There is no file %s; the directory is asked for a registration of that name.", what)
		path, err := locate(ctx, client, what, origin, apiclient.ReadOptions{})
		if err != nil {
			return nil, a.suggestLookup(err, what)
		}
		in, err := a.fetchProof(ctx, path)
		if err != nil {
			return nil, err
		}
		in.ask(what) // path may have the rid that a lookup found for a name
		in.origin = cmp.Or(in.origin, origin)
		return in, nil
	}
	text, err := a.readFile(what, trust.MaxProof+1)

	return &evidenceInput{text: text}, err
}

// namesRegistration reports whether an argument is no file, can be a registration's
// name or rid, and a directory is given that can be asked. What is written as a path,
// from the root or from this directory, is meant as a file.
func (a *app) namesRegistration(what string) bool {
	if filepath.IsAbs(what) || strings.HasPrefix(what, "./") || strings.HasPrefix(what, "../") {
		return false
	}
	if _, err := os.Lstat(what); !errors.Is(err, fs.ErrNotExist) {
		return false
	}
	_, notRID := directory.ParseRID(what)
	_, notName := directory.ParseName(what)

	return (notRID == nil || notName == nil) && a.setting("address") != ""
}

// registrationURL returns the path of the registration at a URL. Tokens go to the
// directory that was chosen for them, so no other is asked.
func (a *app) registrationURL(text string) (path string, err error) {
	u, err := url.Parse(text)
	if err != nil || u.Scheme != "https" || u.Host == "" || u.User != nil || u.RawQuery != "" || u.Fragment != "" ||
		!strings.HasPrefix(u.EscapedPath(), "/ad/r/") {
		return "", usage("%q is not the URL of a registration", text).
			because("It is https://HOST/ad/r/RID or https://HOST/ad/r/DOMAIN/RID; " +
				"anything else save first, and verify the file.")
	}
	if a.setting("address") == "" {
		if a.setting("token-file") != "" || a.setting("wit") != "" {
			return "", usage("no directory is chosen").
				because("Your token is sent to the directory that --address (or ROSTER_ADDRESS) names, and to no other.")
		}
		a.fallback.Address = "https://" + u.Host
	}
	base, err := a.baseURL()
	if err != nil {
		return "", err
	}
	if base != "https://"+u.Host {
		return "", usage("%s is not of the directory that is chosen, which is %s", text, base).
			because("Your certificate and tokens are meant for that one. --address chooses another.")
	}

	return strings.TrimSuffix(u.EscapedPath(), "/proof"), nil
}

// fetchProof fetches the proof of the registration at a path, /ad/r/ID or
// /ad/r/DOMAIN/ID.
func (a *app) fetchProof(ctx context.Context, path string) (*evidenceInput, error) {
	in := new(evidenceInput)
	segments := strings.Split(strings.TrimPrefix(path, "/ad/r/"), "/")
	for i, segment := range segments {
		text, err := url.PathUnescape(segment)
		if err != nil || len(segments) > 2 {
			return nil, usage("%q is not the path of a registration", path)
		}
		segments[i] = text
	}
	if len(segments) == 2 {
		in.origin = segments[0]
	}
	in.ask(segments[len(segments)-1])

	client, err := a.client()
	if err != nil {
		return nil, err
	}
	reply, err := client.Proof(ctx, path)
	if err != nil {
		return nil, a.suggestLookup(err, segments[len(segments)-1])
	}
	in.text = reply.Body
	in.directory, err = a.baseURL()

	return in, err
}

// ask notes which registration is asked for, by rid or name.
func (in *evidenceInput) ask(id string) {
	if rid, err := directory.ParseRID(id); err == nil {
		in.rid = rid.String()
		return
	}
	in.name = id
	if name, err := directory.ParseName(id); err == nil {
		in.name = name
	}
}

func verdictTable(r *trust.Report) table {
	t := table{head: []string{"RESULT", "STEP", "FOUND"}}
	for _, s := range r.Steps {
		result := "holds"
		switch {
		case s.Skipped:
			result = "-"
		case !s.OK:
			result = "FAILS"
		}
		t.rows = append(t.rows, []string{result, s.Name, s.Detail})
	}
	if len(r.Unchecked) > 0 {
		t.rows = append(t.rows, []string{"-", "not checked", "of the file: " + strings.Join(r.Unchecked, ", ")})
	}

	authentic := "no"
	if r.Authentic {
		authentic = "yes"
	}
	t.rows = append(t.rows, []string{authentic, "authentic", "anchor: " + string(r.Anchor)})

	return t
}

// readFile reads a file of at most limit bytes; - is standard input.
func (a *app) readFile(file string, limit int64) ([]byte, error) {
	in := a.stdin
	if file != "-" {
		f, err := os.Open(file)
		if err != nil {
			return nil, failed(exitFailed, "the file can't be read: %w", err)
		}
		defer f.Close()
		in = f
	}
	b, err := io.ReadAll(io.LimitReader(in, limit))
	if err != nil {
		return nil, failed(exitFailed, "the file can't be read: %w", err)
	}
	if int64(len(b)) == limit {
		return nil, failed(exitFailed, "the file %s is too large", file).because("At most %d bytes are read.", limit-1)
	}
	return b, nil
}
