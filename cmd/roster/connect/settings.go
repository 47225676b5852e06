package connect

import (
	"cmp"
	"net/url"
	"slices"
	"strconv"
	"strings"

	"github.com/spf13/pflag"

	"github.com/roster-mesh/roster/cmd/roster/cli"
	"github.com/roster-mesh/roster/directory"
)

// The names of the connection's flags.
const (
	flagContext     = "context"
	flagAddress     = "address"
	flagDomain      = "domain"
	flagBundle      = "bundle"
	flagCert        = "cert"
	flagKey         = "key"
	flagWorkloadAPI = "workload-api"
	flagWIT         = "wit"
	flagWITKey      = "wit-key"
	flagTokenFile   = "token-file"
)

// A definition describes one setting of the connection.
type definition struct{ flag, variable, help string }

// definitions lists the settings. A context holds all but the first one, which names the
// context.
var definitions = []definition{
	{flagContext, "ROSTER_CONTEXT", "`NAME` of the saved connection to use (default: the current one)"},
	{flagAddress, "ROSTER_ADDRESS", "`URL` of the directory, https://HOST[:PORT] of any of its nodes; repeat it, or " +
		"separate several by commas"},
	{flagDomain, "ROSTER_DOMAIN", "trust `DOMAIN` of the directory: with a bundle, only its nodes are accepted " +
		"(default: that of the certificate)"},
	{flagBundle, "ROSTER_BUNDLE", "`FILE` with the CA certificates of the directory's domain, in PEM or as a SPIFFE " +
		"bundle (default: the system's)"},
	{flagCert, "ROSTER_CERT", "PEM `FILE` with your X.509-SVID and its chain"},
	{flagKey, "ROSTER_KEY", "PEM `FILE` with the private key of --cert"},
	{flagWorkloadAPI, "SPIFFE_ENDPOINT_SOCKET",
		"`ADDRESS` of the SPIFFE Workload API, unix:///PATH, to get your X.509-SVID and bundle from"},
	{flagWIT, "ROSTER_WIT", "`FILE` with your workload identity token (WIT), or workload-api to get it from there"},
	{flagWITKey, "ROSTER_WIT_KEY", "PEM `FILE` with the private key of --wit"},
	{flagTokenFile, "ROSTER_TOKEN_FILE", "`FILE` with your OAuth access token or JWT-SVID"},
}

// The origin of a setting's value.
const (
	fromFlag        = "flag"
	fromEnvironment = "environment"
	fromContext     = "context"
)

// settings are the values of the connection's flags, environment variables and context.
type settings struct {
	flags  *pflag.FlagSet // shared by all commands that talk to a directory
	getenv func(string) string
	store  contextStore

	only         string  // the trust domain that a context must have; empty for any
	selected     Profile // the context to use; empty before UseContext, or without a context
	selectedName string
	mixed        bool // whether it was noted that the context adds to flags

	pinned   Profile // values that apply unless a flag has another
	fallback Profile // values that apply if no setting has one
}

// newFlags returns the connection's flags.
func newFlags() *pflag.FlagSet {
	flags := pflag.NewFlagSet("connection", pflag.ContinueOnError)

	for _, d := range definitions {
		usage := d.help + " [" + d.variable + "]"
		if d.flag == flagAddress {
			flags.Var(new(addressList), d.flag, usage)
		} else {
			flags.String(d.flag, "", usage)
		}
	}

	flags.String(flagTimeout, "", "`DURATION` that the command may take, 0 for no limit (default: "+
		defaultTimeout.String()+"; no limit for commands that run until interrupted) ["+timeoutVariable+"]")

	return flags
}

// An addressList is the value of --address: URLs, separated by commas. A repeated flag adds
// to it.
type addressList string

// String returns the URLs, separated by commas.
func (a *addressList) String() string { return string(*a) }

// Type names the flag's value in the help.
func (a *addressList) Type() string { return "URL" }

// Set adds URLs.
func (a *addressList) Set(text string) error {
	if *a != "" {
		text = string(*a) + "," + text
	}

	*a = addressList(text)

	return nil
}

// givenFlags returns the connection's flags on the command line, quoted for a shell.
func (s *settings) givenFlags() []string {
	var words []string
	for _, d := range definitions {
		if f := s.flags.Lookup(d.flag); f.Changed {
			words = append(words, "--"+d.flag, cli.ShellQuote(f.Value.String()))
		}
	}

	return words
}

// value returns the value of a setting, or nothing.
func (s *settings) value(flag string) string {
	value, _ := s.valueAndOrigin(flag)
	return value
}

// valueAndOrigin returns the value of a setting and whether it comes from a flag, the
// environment or the context. The origin of a fallback is empty.
func (s *settings) valueAndOrigin(flag string) (value, origin string) {
	if f := s.flags.Lookup(flag); f.Changed {
		return f.Value.String(), fromFlag
	}

	// A pinned node wins over the environment and the context, which may name another one.
	if value := s.pinned.field(flag); value != nil && *value != "" {
		return *value, ""
	}

	for _, d := range definitions {
		if d.flag == flag && s.getenv(d.variable) != "" && !s.environmentReplaced(flag) {
			return s.getenv(d.variable), fromEnvironment
		}
	}

	if value := s.selected.field(flag); value != nil && *value != "" && !s.contextReplaced(flag) {
		return *value, fromContext
	}

	if value := s.fallback.field(flag); value != nil {
		return *value, ""
	}

	return "", ""
}

// domain returns the trust domain of the directory, or nothing. That of the environment or
// the context belongs to the address there, not to another one of a flag.
func (s *settings) domain() string {
	domain, origin := s.valueAndOrigin(flagDomain)
	if _, addressOrigin := s.valueAndOrigin(flagAddress); addressOrigin == fromFlag && origin != fromFlag {
		return ""
	}

	return domain
}

// contextReplaced reports whether other values replace the context's value of a setting: the address replaces the
// domain and, if it is not the context's, the bearer token; a certificate its key, a WIT its key, and the Workload API
// the identity and the bundle.
func (s *settings) contextReplaced(flag string) bool {
	isGiven := func(names ...string) bool {
		return slices.ContainsFunc(names, func(name string) bool { return s.flags.Lookup(name).Changed })
	}

	switch flag {
	case flagCert, flagKey:
		return isGiven(flagCert, flagKey, flagWorkloadAPI)
	case flagWIT, flagWITKey:
		return isGiven(flagWIT, flagWITKey)
	case flagBundle:
		return isGiven(flagWorkloadAPI)
	case flagDomain:
		return isGiven(flagAddress)
	case flagTokenFile:
		// A directory that gets a bearer token could use it at the context's. A pinned node is of the context's domain.
		address, origin := s.valueAndOrigin(flagAddress)
		return (origin == fromFlag || origin == fromEnvironment) && !s.selected.hasAddresses(address)
	}

	return false
}

// mixture returns the flags whose values come from the current context although other flags are
// given. With --context, which asks for them, it returns nil.
func (s *settings) mixture() []string {
	if s.flags.Lookup(flagContext).Changed {
		return nil
	}

	var names []string

	given := false
	for _, d := range definitions[1:] {
		_, origin := s.valueAndOrigin(d.flag)
		given = given || origin == fromFlag

		if origin == fromContext {
			names = append(names, "--"+d.flag)
		}
	}

	if !given {
		return nil
	}

	return names
}

// environmentReplaced reports whether a context replaces the environment for this setting.
// The Workload API belongs to the machine, not to a directory, so it stays in force unless
// the context has an identity of its own.
func (s *settings) environmentReplaced(flag string) bool {
	if !s.flags.Lookup(flagContext).Changed {
		return false
	}

	hasIdentity := s.selected.Cert != "" || s.selected.WIT != "" || s.selected.Token != ""

	return flag != flagWorkloadAPI || hasIdentity
}

// useContext selects the context that --context or ROSTER_CONTEXT names, else the current
// one, if there is one.
func (s *settings) useContext(program string) error {
	saved, err := s.store.read()
	if err != nil {
		return err
	}

	name := saved.Current
	if asked := s.value(flagContext); asked != "" {
		name = asked
	}

	selected, ok := saved.All[name]
	if !ok && name != "" {
		return cli.Usage("unknown context %q", name).
			WithHint("It is named by --context, by ROSTER_CONTEXT or as the current context.").
			WithNext(program + " context list")
	}

	// A broken context fails only the commands that would use it.
	if err := saved.broken[name]; err != nil {
		return cli.Failed(cli.ExitFailed, "cannot read the context %q: %w", name, err).
			WithHint("Save it again, or remove it:").
			WithNext(program + " context remove " + cli.ShellQuote(name))
	}

	if s.only != "" && selected.Domain != "" && selected.Domain != s.only {
		// A context that the user named is refused. The current one may be left out silently.
		if s.value(flagContext) != "" {
			return cli.Usage("context %q is of %s, and the node of %s", name, selected.Domain, s.only).
				WithNext(program + " context list")
		}

		// The current context has an identity in another domain.
		selected, name = Profile{}, ""
	}

	s.selected = selected
	s.selectedName = name

	return nil
}

// baseURLs returns the addresses of the directory's nodes, each https://HOST[:PORT].
func (s *settings) baseURLs(program string) ([]string, error) {
	given := s.value(flagAddress)
	if given == "" {
		return nil, cli.Usage("no directory address").
			WithHint("Give --address https://HOST[:PORT] or set ROSTER_ADDRESS; to try things on this machine, " +
				"start a mesh:").
			WithNext(program + " dev")
	}

	var all []string

	for address := range strings.SplitSeq(given, ",") {
		if strings.TrimSpace(address) == "" {
			return nil, cli.Usage("an address is empty in %q; separate several by one comma", given).
				WithHint("It is named by --address, by ROSTER_ADDRESS or by the context.")
		}

		target, err := url.Parse(strings.TrimSpace(address))
		if err != nil || !isBaseURL(target) {
			// The address may have a password, which must not be shown.
			return nil, cli.Usage("invalid directory address %q; must be https://HOST[:PORT]", withoutUser(address))
		}

		all = append(all, "https://"+target.Host)
	}

	return all, nil
}

// withoutUser hides a user name and password, also of an address without a scheme.
func withoutUser(address string) string {
	if !strings.Contains(address, "//") && strings.Contains(address, "@") {
		return "…" + address[strings.LastIndexByte(address, '@'):]
	}

	return directory.HideUserinfo(address)
}

func isBaseURL(u *url.URL) bool {
	return u.Scheme == "https" && u.Hostname() != "" && isPort(u.Port()) && u.User == nil && u.RawQuery == "" &&
		u.Fragment == "" && (u.Path == "" || u.Path == "/")
}

// isPort reports whether a text is the number of a port, or empty.
func isPort(text string) bool {
	number, err := strconv.ParseUint(cmp.Or(text, "443"), 10, 16)
	return err == nil && number > 0
}
