package connect

import (
	"fmt"
	"net/http"
	"os"
	"strings"
	"time"

	apiclient "github.com/roster-mesh/roster/api/client"
	"github.com/roster-mesh/roster/cmd/roster/cli"
	"github.com/roster-mesh/roster/trust/credentials"
)

// witOfWorkloadAPI is the value of --wit for a token from the Workload API in place of a
// file.
const witOfWorkloadAPI = "workload-api"

// addToken returns a transport that adds the given token, if there is one, to every
// request. A client certificate may come beside it.
func (d *Directory) addToken(next http.RoundTripper) (http.RoundTripper, error) {
	wit := d.settings.value(flagWIT)
	witKey := d.settings.value(flagWITKey)
	tokenFile := d.settings.value(flagTokenFile)

	switch {
	case wit != "" && tokenFile != "":
		return nil, errTwoTokens()
	case wit == witOfWorkloadAPI && witKey != "":
		return nil, cli.Usage("--wit %s and --wit-key exclude each other", witOfWorkloadAPI).
			WithHint("The Workload API provides the token's key.")
	case wit == witOfWorkloadAPI:
		return d.identity.addWIT(next)
	case wit == "" && witKey != "":
		return nil, cli.Usage("--wit-key without --wit").
			WithHint("Give both --wit and --wit-key (or ROSTER_WIT and ROSTER_WIT_KEY), or neither.")
	case wit != "" && witKey == "":
		return nil, cli.Usage("--wit without --wit-key").
			WithHint("Give both --wit and --wit-key (or ROSTER_WIT and ROSTER_WIT_KEY), or neither.")
	case wit != "":
		return addWITFromFiles(next, wit, witKey)
	case tokenFile != "":
		return addBearer(next, tokenFile)
	}

	return next, nil
}

func errTwoTokens() error {
	return cli.Usage("--wit and --token-file exclude each other").WithHint("A request carries one token.")
}

func addWITFromFiles(next http.RoundTripper, wit, key string) (http.RoundTripper, error) {
	workload, err := credentials.OpenWorkload(wit, key)
	if err != nil {
		return nil, cli.Failed(cli.ExitKey, "cannot use the workload identity token: %w", err).
			WithHint("--wit is %s and --wit-key is %s.", wit, key)
	}

	return apiclient.ShowWorkload(next, func(method, target string) (string, string, error) {
		return workload.Prove(method, target, time.Now())
	}), nil
}

func addBearer(next http.RoundTripper, file string) (http.RoundTripper, error) {
	token := func() (string, error) { return readToken(file) }

	// A file that can't be used fails here, and not at the first request.
	if _, err := token(); err != nil {
		return nil, cli.Failed(cli.ExitKey, "cannot use the token: %w", err)
	}

	return apiclient.ShowBearer(next, token), nil
}

// readToken reads a token from a file that its issuer replaces from time to time.
func readToken(file string) (string, error) {
	text, err := os.ReadFile(file)
	if err != nil {
		return "", err
	}

	token := strings.TrimSpace(string(text))
	if token == "" || strings.ContainsAny(token, " \t\r\n") {
		return "", fmt.Errorf("%s must contain exactly one token", file)
	}

	return token, nil
}
