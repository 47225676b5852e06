package main

import (
	"errors"
	"fmt"
	"io"
	"os"
	"strings"

	"github.com/spf13/cobra"
	"github.com/spiffe/go-spiffe/v2/spiffeid"

	"github.com/roster-mesh/roster/trust"
)

func (a *app) verifyCommand() *cobra.Command {
	f := &fetching{app: a}
	var agent, origin string
	c := &cobra.Command{
		Use:   "verify FILE | --agent NAME|RID",
		Short: "Check a proof file or a record without a network, or an agent by its own word",
		Long: `Check a proof file, a bare record, or evidence that a domain contradicted itself, in
FILE (- is standard input), without a network, and print each step, or the one that
failed and why.

--bundle (or ROSTER_BUNDLE) decides whom you trust: certificate authorities in PEM,
or a SPIFFE bundle. Without it the file's own bundle is taken, which shows that the
file agrees with itself and no more.

With --agent it fetches what an agent says of itself at its base (its A2A card, its
Web of Agents document, or what its MCP server says), from here and not by the
directory, and shows in what that differs from its registration.

Exit codes: 10 signature or format, 11 evidence that holds, 12 key or identity, 13
inclusion, 14 expired; of an agent 1 where it says something else, 6 where nothing
is to be had.`,
		Example: "  curl -K DIR/curlrc -o proof.json https://127.0.0.1:8400/ad/r/RID/proof\n  roster verify proof.json --bundle DIR/alpha.test/bundle.pem",
		Args: func(c *cobra.Command, args []string) error {
			if agent != "" {
				return needs()(c, args)
			}
			return needs("FILE")(c, args)
		},
		RunE: func(c *cobra.Command, args []string) error {
			if agent != "" {
				return a.verifyAgent(c.Context(), f, agent, origin)
			}
			return a.verify(args[0])
		},
	}
	c.Flags().StringVar(&agent, "agent", "", "an agent, by name or rid, to ask what it is")
	c.Flags().StringVar(&origin, "origin", "", "with --agent: the domain that registered it")
	f.flags(c)
	return c
}

func (a *app) verify(file string) error {
	if strings.HasPrefix(file, "https://") {
		return usage("verify reads files, not the network").because("Save it first:").try("curl -o proof.json " + shellQuote(file))
	}
	if err := a.choose(); err != nil {
		return err
	}
	opts := trust.VerifyOptions{}
	if bundle := a.setting("bundle"); bundle != "" {
		text, err := os.ReadFile(bundle)
		if err != nil {
			return failed(exitFailed, "the bundle can't be read: %w", err)
		}
		if opts.Bundle, err = trust.ParseBundle(spiffeid.TrustDomain{}, text); err != nil {
			return failed(exitKey, "the bundle %s can't be used: %w", bundle, err)
		}
	}
	input, err := a.readFile(file, trust.MaxProof+1)
	if err != nil {
		return err
	}
	report, failure := trust.Verify(input, opts)
	if err := a.printOwn(report, "steps", steps(report)); err != nil {
		return err
	}
	if errors.Is(failure, trust.ErrEquivocation) {
		return failed(trust.ExitCode(failure), "%s holds: %s contradicts itself", file, report.Subject.Domain).
			because("It signed two things that no honest domain can have signed both: the steps above say which.")
	}
	if failure != nil {
		return failed(trust.ExitCode(failure), "%s does not hold: %w", file, failure)
	}
	if !report.Authentic {
		a.note("%s is well formed; who signed it is not shown.", file)
	}
	return nil
}

func steps(r *trust.Report) table {
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
		return nil, failed(exitFailed, "the file %s is too large", file).because("%s", fmt.Sprintf("At most %d bytes are read.", limit-1))
	}
	return b, nil
}
