package local

import (
	"cmp"
	"errors"
	"io/fs"
	"path/filepath"
	"strings"

	"github.com/spf13/cobra"

	"github.com/roster-mesh/roster/cmd/roster/cli"
	"github.com/roster-mesh/roster/cmd/roster/connect"
)

// An initialisation is one run of "roster init".
type initialisation struct {
	session        *connect.Session
	given          answers
	nonInteractive bool
}

// initDomainCommand returns the command that configures a new domain.
func initDomainCommand(session *connect.Session) *cobra.Command {
	run := &initialisation{session: session}
	cmd := &cobra.Command{
		Use:   "init [DIR]",
		Short: "Write the configuration of a new domain",
		Long: `Write a commented configuration for each node of a new domain, DIR/NAME/node.yaml. With a
certificate authority made by "roster ca init", the command also issues the SVIDs of the nodes
and of an operator, and saves the operator's connection as a context named after the trust
domain.

Each member is NAME=ADDRESS, or an address alone that is also the name: one, three or five
nodes. A node listens on four ports from --port on: API, admin, cluster and gossip.

With --join, write the configuration of one node that joins a domain: --join is the address
of any of the domain's nodes. An operator admits the node once, with "roster raft admit".

On a terminal the command asks for the trust domain and the members if no flag gives them.
Nothing is overwritten, and nothing is written if the command fails.`,
		Example: "  roster ca init alpha.test\n" +
			"  roster init --members a=10.0.0.1,b=10.0.0.2,c=10.0.0.3\n" +
			"  roster init /etc/roster --trust-domain alpha.test --members a.alpha.test " +
			"--identities unix:///run/spire/sockets/agent.sock\n" +
			"  roster init --join 10.0.0.1 --members d=10.0.0.4",
		Args: cli.AtMostOne("DIR"),
		RunE: func(_ *cobra.Command, args []string) error {
			return run.run(append(args, ".")[0])
		},
	}

	flags := cmd.Flags()
	flags.StringVar(&run.given.trustDomain, "trust-domain", "",
		"trust `DOMAIN` of the directory (default: that of the certificate authority)")
	flags.StringSliceVar(&run.given.members, "members", nil,
		"`NAME=ADDRESS`, with commas, of one, three or five nodes")
	flags.StringSliceVar(&run.given.join, "join", nil,
		"`ADDRESS` of a domain's node, HOST or HOST:PORT of its listen.cluster, at which one new node joins; more "+
			"than one with commas")
	flags.StringVar(&run.given.publicURL, "public-url", "",
		"`URL` at which clients and peers reach the directory (default: that of the first node)")
	flags.StringVar(&run.given.identities, "identities", fromCA,
		"`SOURCE` of the nodes' SVIDs: ca, files, or the address of a Workload API, unix:///PATH")
	flags.StringVar(&run.given.ca, "ca", DefaultDir, "`DIRECTORY` of the certificate authority")
	flags.IntVar(&run.given.port, "port", 8400, "`PORT` of the API; the other ports follow")
	flags.BoolVar(&run.nonInteractive, "non-interactive", false, "never ask")

	return cmd
}

func (i *initialisation) run(dir string) error {
	if err := i.complete(); err != nil {
		return err
	}

	p, err := newPlan(dir, i.given)
	if err != nil {
		return cli.Usage("%w", err)
	}

	if err := i.check(p); err != nil {
		return err
	}

	if err := p.write(); err != nil {
		return cli.Failed(cli.ExitFailed, "cannot write the configuration: %w", err)
	}

	if p.identities == fromCA && !p.joins() {
		if err := i.saveContext(p); err != nil {
			// The files are removed again, so that a second try is not refused.
			return errors.Join(err, p.remove())
		}
	}

	return i.report(p)
}

// complete takes the trust domain from the certificate authority, and asks for the rest
// on a terminal.
func (i *initialisation) complete() error {
	usesCA := i.given.identities == fromCA
	domainOfCA := ""

	if usesCA {
		store, err := Open(i.given.ca)

		switch {
		case err == nil:
			domainOfCA = store.TrustDomain().Name()
			store.Close()
		case !errors.Is(err, fs.ErrNotExist):
			return cli.Failed(cli.ExitFailed, "cannot open the certificate authority: %w", err).
				WithHint("Name another directory with --ca, or choose another source with --identities.")
		}
	}

	i.given.trustDomain = cmp.Or(i.given.trustDomain, domainOfCA)

	if i.session.IsInteractive() && !i.nonInteractive {
		if err := ask(i.session.Stdin, i.session.Stderr, i.questions()); err != nil {
			return cli.Usage("%w", err)
		}
	}

	var missing []string
	if i.given.trustDomain == "" {
		missing = append(missing, "--trust-domain DOMAIN")
	}

	if len(i.given.members) == 0 {
		missing = append(missing, "--members NAME=ADDRESS,...")
	}

	if len(missing) > 0 {
		return cli.Usage("missing %s", strings.Join(missing, " and "))
	}

	if usesCA && i.given.identities == fromCA && domainOfCA == "" {
		return cli.Failed(cli.ExitNotFound, "%s has no certificate authority", i.given.ca).
			WithHint("Create one, name its directory with --ca, or choose another source with --identities:").
			WithNext(i.session.Program + " ca init " + cli.ShellQuote(i.given.trustDomain))
	}

	return nil
}

// questions returns the questions for the values that no flag gives.
func (i *initialisation) questions() []question {
	var list []question
	if i.given.trustDomain == "" {
		list = append(list, question{"Trust domain, such as alpha.test",
			func(answer string) { i.given.trustDomain = answer }})
	}

	if len(i.given.members) == 0 {
		list = append(list, question{"Nodes, as NAME=ADDRESS with commas (1, 3 or 5)",
			func(answer string) { i.given.members = strings.Split(strings.ReplaceAll(answer, " ", ""), ",") }})
	}

	return list
}

// check refuses to replace files or a context.
func (i *initialisation) check(p *plan) error {
	if err := p.checkNothingExists(); err != nil {
		return cli.Failed(cli.ExitConflict, "%w", err).WithHint("Choose another DIR, or remove what is there.")
	}

	if p.identities != fromCA || p.joins() {
		return nil
	}

	exists, err := i.session.HasContext(p.trustDomain.Name())
	if err != nil {
		return err
	}

	if exists {
		return cli.Failed(cli.ExitConflict, "the context %s exists: nothing is overwritten", p.trustDomain.Name()).
			WithHint("It connects to another domain of that name, such as the tutorial's. Without that domain, " +
				"remove the context:").WithNext(i.session.Program + " context remove " + p.trustDomain.Name())
	}

	return nil
}

// saveContext saves the operator's connection, to all members: any of them may be stopped.
func (i *initialisation) saveContext(p *plan) error {
	dir := p.operatorDir()

	var apis []string
	for _, m := range p.members {
		apis = append(apis, m.api())
	}

	return i.session.SaveContext(p.trustDomain.Name(), connect.Profile{
		Address: strings.Join(apis, ","),
		Domain:  p.trustDomain.Name(),
		Bundle:  filepath.Join(dir, bundleFile),
		Cert:    filepath.Join(dir, "operator.pem"),
		Key:     filepath.Join(dir, "operator.key"),
	})
}

// report prints the files and the next commands.
func (i *initialisation) report(p *plan) error {
	type configured struct {
		ID     string `json:"id"`
		Config string `json:"config"`
		API    string `json:"api"`
	}

	var nodes []configured

	t := cli.Table{Head: []string{"NODE", "CONFIG", "API"}}
	for _, m := range p.members {
		file := filepath.Join(p.nodeDir(m), configFile)
		nodes = append(nodes, configured{m.id.String(), file, m.api()})
		t.Add(m.id.String(), file, m.api())
	}

	if err := i.session.PrintValue(struct {
		Nodes []configured `json:"nodes"`
	}{nodes}, "nodes", t); err != nil {
		return err
	}

	i.next(p)

	return nil
}

// next notes the next steps.
func (i *initialisation) next(p *plan) {
	switch p.identities {
	case fromCA:
		i.session.Note("The SVIDs expire in %.0f hours: run \"%s ca renew\" from a timer, at least once a day.",
			DefaultLifetime.Hours(), i.session.Program)
	case fromFiles:
		i.session.Note("Put %s, %s and %s beside each %s.", certFile, keyFile, bundleFile, configFile)
	default:
		i.session.Note("Each node needs a registration entry for its SPIFFE ID, and an operator one below "+
			"spiffe://%s/ops/.", p.trustDomain.Name())
	}

	if p.joins() {
		i.session.Note("Next, as an operator of %s:", p.trustDomain.Name())
		i.session.Note("  %s raft admit %s", i.session.Program, p.members[0].id)
	}

	i.session.Note("Next, on each node with its directory:")

	for _, m := range p.members {
		i.session.Note("  %s serve --config %s", i.session.Program,
			cli.ShellQuote(filepath.Join(p.nodeDir(m), configFile)))
	}

	if p.identities == fromCA && !p.joins() {
		i.session.Note("Then: %s --context %s status", i.session.Program, p.trustDomain.Name())
	}
}
