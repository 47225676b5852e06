package main

import (
	"fmt"
	"io"
	"os"
	"strings"

	"github.com/spf13/cobra"
	"github.com/spiffe/go-spiffe/v2/spiffeid"

	"github.com/roster-mesh/roster/trust"
)

func (a *app) verifyCommand() *cobra.Command {
	return &cobra.Command{
		Use:   "verify FILE",
		Short: "Check a proof file or a record, without a network",
		Long: `Check a proof file, or a bare record, in FILE (- is standard input), without a
network, and print each step, or the one that failed and why.

--bundle (or ROSTER_BUNDLE) decides whom you trust: certificate authorities in PEM,
or a SPIFFE bundle. Without it the proof's own bundle is taken, which shows that the
proof agrees with itself and no more.

Exit codes: 10 signature or format, 12 key or identity, 13 inclusion, 14 expired.`,
		Example: "  curl -K DIR/curlrc -o proof.json https://127.0.0.1:8400/ad/r/RID/proof\n  roster verify proof.json --bundle DIR/alpha.test/bundle.pem",
		Args:    needs("FILE"),
		RunE:    func(_ *cobra.Command, args []string) error { return a.verify(args[0]) },
	}
}

func (a *app) verify(file string) error {
	if strings.HasPrefix(file, "https://") {
		return usage("verify reads files, not the network").because("Save it first:").try("curl -o proof.json " + shellQuote(file))
	}
	if err := a.choose(); err != nil {
		return err
	}
	opts := trust.VerifyOptions{}
	if bundle := a.setting("bundle", "ROSTER_BUNDLE"); bundle != "" {
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
	body, err := marshal(report)
	if err != nil {
		return err
	}
	if err := a.print(answer{body, "steps", steps(report)}); err != nil {
		return err
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
