package catalog

import (
	"net/http"
	"slices"
	"strings"

	"github.com/roster-mesh/roster/api/request"
	"github.com/roster-mesh/roster/api/response"
	"github.com/roster-mesh/roster/directory"
	"github.com/roster-mesh/roster/directory/index"
	"github.com/roster-mesh/roster/directory/strictjson"
)

// ProtectedResourcePath is the path of the OAuth metadata (RFC 9728).
const ProtectedResourcePath = "/.well-known/oauth-protected-resource"

// A WellKnown answers the routes under /.well-known that don't change while a node runs,
// and the domain's trust bundle.
type WellKnown struct {
	Domain       string
	PublicURL    string
	LookupParams []string // that GET /ad/l knows
	Accepted     request.AcceptedCredentials
	Bundle       func() ([]byte, error)
}

// AD answers GET /.well-known/ad with the directory's interfaces, the same on every node
// (jimenez 3.1, AD-006, AD-047). refresh and max_refresh are this directory's own: the path
// at which many registrations are refreshed at once, and how many.
func (k *WellKnown) AD(w http.ResponseWriter, call *request.Call) error {
	params := append(slices.Clip(k.LookupParams), "min", "wait")
	data := strictjson.AppendText([]byte{'{'}, "registration", "/ad/r")
	data = strictjson.AppendText(data, "lookup", "/ad/l{?"+strings.Join(params, ",")+"}")
	data = strictjson.AppendText(data, "refresh", "/ad/refresh")
	data = strictjson.AppendUint(data, "max_refresh", directory.MaxRenewals)
	data = strictjson.AppendUint(data, "max_count", index.MaxCount)
	data = strictjson.AppendRaw(data, "authentication", strictjson.AppendStrings(nil, k.Accepted.Methods()))
	data = response.AppendOptional(data, "plain_bearer", k.Accepted.Plain)

	return response.SendPublic(w, call, "application/json", append(data, '}', '\n'))
}

// TrustBundle answers GET /.well-known/spiffe-bundle.
func (k *WellKnown) TrustBundle(w http.ResponseWriter, call *request.Call) error {
	data, err := k.Bundle()
	if err != nil {
		return err
	}

	return response.SendPublic(w, call, "application/json", data)
}

// ProtectedResource answers GET /.well-known/oauth-protected-resource (RFC 9728, 3).
// plain_bearer is this directory's own: the use of tokens that are bound to no
// certificate.
func (k *WellKnown) ProtectedResource(w http.ResponseWriter, call *request.Call) error {
	data := strictjson.AppendText([]byte{'{'}, "resource", k.PublicURL)
	data = strictjson.AppendRaw(data, "authorization_servers", strictjson.AppendStrings(nil, k.Accepted.Issuers))
	data = strictjson.AppendRaw(data, "bearer_methods_supported", []byte(`["header"]`))
	data = response.AppendBool(data, "tls_client_certificate_bound_access_tokens", k.Accepted.Plain == "")
	data = strictjson.AppendText(data, "resource_name", "Agent directory of "+k.Domain)
	data = response.AppendOptional(data, "plain_bearer", k.Accepted.Plain)

	return response.SendPublic(w, call, "application/json", append(data, '}', '\n'))
}
