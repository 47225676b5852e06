package gateway

import (
	"cmp"
	"context"
	"crypto/rand"
	"net/http"
	"slices"
	"strings"

	"github.com/go-json-experiment/json"

	"github.com/roster-mesh/roster/directory"
	"github.com/roster-mesh/roster/directory/invoke"
	"github.com/roster-mesh/roster/directory/strictjson"
)

// A dialect holds the names that differ between versions of A2A.
type dialect struct {
	version        string // of A2A-Version; "" if the version has no such header
	send, stream   string // methods of JSON-RPC
	prefix         string // of the paths of HTTP+JSON
	role           string
	media          string // of requests over HTTP+JSON; JSON's own if it is ""
	discriminators bool   // messages and parts say their kind
}

var (
	a2a03 = dialect{send: "message/send", stream: "message/stream", prefix: "/v1", role: "user", discriminators: true}
	a2a10 = dialect{version: "1.0", send: "SendMessage", stream: "SendStreamingMessage", role: "ROLE_USER",
		media: "application/a2a+json"}
)

// An a2aInterface is the part of an agent card's interface that each request to it depends on.
type a2aInterface struct {
	dialect dialect
	tenant  string // "" if the interface declares none
}

// callA2A sends the input as a message (A2A 0.3 and 1.0: JSON-RPC, HTTP+JSON). An input
// with a member message is a message's own parameters. An input that is a text, alone or as
// the member text, is sent as text, and any other as data.
func (i *invocation) callA2A(ctx context.Context, w *agentTask) (*invoke.Reply, error) {
	dialect := i.a2a.dialect

	params, err := dialect.params(w, i.a2a.tenant)
	if err != nil {
		return nil, err
	}

	header := http.Header{}
	if dialect.version != "" {
		header.Set("A2A-Version", dialect.version)
	}

	if i.binding.Transport == "HTTP+JSON" {
		verb := "/message:send"
		if i.in.Stream {
			verb = "/message:stream"
		}

		if dialect.media != "" {
			header.Set("Content-Type", dialect.media)
		}

		reply, err := i.post(ctx, w, strings.TrimRight(i.binding.Endpoint, "/")+dialect.prefix+verb, params, header)
		if err != nil || reply.Stream != nil {
			return reply, err
		}

		return reply, unfailed(reply.Body)
	}

	method := dialect.send
	if i.in.Stream {
		method = dialect.stream
	}

	body := strictjson.AppendText([]byte{'{'}, "jsonrpc", "2.0")
	body = strictjson.AppendText(body, "id", "1")
	body = strictjson.AppendText(body, "method", method)
	body = append(strictjson.AppendRaw(body, "params", params), '}')

	a, err := i.post(ctx, w, i.binding.Endpoint, body, header)
	if err != nil {
		return nil, err
	}

	if a.Stream != nil {
		a.Stream = results(a.Stream)
		return a, nil
	}

	if a.Body, err = resultOf(a.Body); err != nil {
		return nil, err
	}

	return a, unfailed(a.Body)
}

// interfaceOf returns the card's interface of the selected binding: the first one with its URL and
// transport, since several interfaces may share a URL (A2A 1.0, 8.3.1). One of 1.0 that names no
// version is of 1.0; a card's url is of 0.3.
func interfaceOf(document directory.Document, binding directory.Binding) a2aInterface {
	var card struct {
		Interfaces []struct {
			URL       string `json:"url"`
			Binding   string `json:"protocolBinding"`
			Transport string `json:"transport"`
			Version   string `json:"protocolVersion"`
			Tenant    string `json:"tenant"`
		} `json:"supportedInterfaces"`
	}

	_ = json.Unmarshal(document.Bytes(), &card) // other documents have no interfaces

	for _, declared := range card.Interfaces {
		if declared.URL != binding.Endpoint || cmp.Or(declared.Binding, declared.Transport) != binding.Transport {
			continue
		}

		if strings.HasPrefix(declared.Version, "0.") {
			return a2aInterface{a2a03, declared.Tenant}
		}

		return a2aInterface{a2a10, declared.Tenant}
	}

	return a2aInterface{dialect: a2a03}
}

// withTenant returns parameters with the tenant that the interface declares, and with no other (A2A
// 1.0, 8.3.2, rule 4): who may call this agent may not call its neighbours at the same URL. A
// decoder may ignore the case of names.
func withTenant(params []strictjson.Member, tenant string) []strictjson.Member {
	params = slices.DeleteFunc(params, func(m strictjson.Member) bool { return strings.EqualFold(m.Name, "tenant") })
	if tenant == "" {
		return params
	}

	return append(params, strictjson.Member{Name: "tenant", Value: strictjson.AppendString(nil, tenant)})
}

// params returns the parameters of a message with the input.
func (d dialect) params(w *agentTask, tenant string) ([]byte, error) {
	var members []strictjson.Member
	if w.Value[0] == '{' {
		var err error
		if members, err = directory.ParseObject(w.Value); err != nil {
			return nil, err
		}
	}

	if own, ok := strictjson.FindMember(members, "message"); ok && own[0] == '{' {
		return ownParams(members, own, tenant)
	}

	message := strictjson.AppendText([]byte{'{'}, "messageId", rand.Text())

	message = strictjson.AppendText(message, "role", d.role)
	if d.discriminators {
		message = strictjson.AppendText(message, "kind", "message")
	}

	message = append(strictjson.AppendRaw(message, "parts", nil), '[')

	message = append(append(message, d.part(members, w.Value)...), ']')
	if w.Name != "" {
		message = strictjson.AppendRaw(message, "metadata",
			append(strictjson.AppendText([]byte{'{'}, "skillId", w.Name), '}'))
	}

	params := []strictjson.Member{{Name: "message", Value: append(message, '}')}}

	return strictjson.AppendObject(nil, withTenant(params, tenant)), nil
}

// ownParams returns the caller's own parameters, with an identifier of the message and the tenant.
func ownParams(members []strictjson.Member, message []byte, tenant string) ([]byte, error) {
	parts, err := directory.ParseObject(message)
	if err != nil {
		return nil, err
	}

	if _, named := strictjson.FindMember(parts, "messageId"); !named {
		parts = append(parts, strictjson.Member{Name: "messageId", Value: strictjson.AppendString(nil, rand.Text())})
	}

	at := slices.IndexFunc(members, func(m strictjson.Member) bool { return m.Name == "message" })
	members[at].Value = strictjson.AppendObject(nil, parts)

	// A push notification's configuration names a tenant of its own.
	for n, m := range members {
		if !strings.EqualFold(m.Name, "configuration") || m.Value[0] != '{' {
			continue
		}

		if members[n].Value, err = withTenants(m.Value, tenant); err != nil {
			return nil, err
		}
	}

	return strictjson.AppendObject(nil, withTenant(members, tenant)), nil
}

// withTenants returns a configuration whose objects that name a tenant name the declared one.
func withTenants(configuration []byte, tenant string) ([]byte, error) {
	members, err := directory.ParseObject(configuration)
	if err != nil {
		return nil, err
	}

	for n, m := range members {
		if m.Value[0] != '{' {
			continue
		}

		inner, err := directory.ParseObject(m.Value)
		if err != nil {
			return nil, err
		}

		if slices.ContainsFunc(inner, func(m strictjson.Member) bool { return strings.EqualFold(m.Name, "tenant") }) {
			members[n].Value = strictjson.AppendObject(nil, withTenant(inner, tenant))
		}
	}

	return strictjson.AppendObject(nil, members), nil
}

// part returns the input as one part.
func (d dialect) part(members []strictjson.Member, input []byte) []byte {
	data, name := []byte{'{'}, "data"

	text, is := strictjson.TextMember(members, "text")

	is = is && len(members) == 1
	if input[0] == '"' {
		text, is = strictjson.Unquote(input), true
	}

	if is {
		name = "text"
	}

	if d.discriminators {
		data = strictjson.AppendText(data, "kind", name)
	}

	if is {
		return append(strictjson.AppendText(data, name, text), '}')
	}

	return append(strictjson.AppendRaw(data, name, input), '}')
}

// unfailed refuses a task that did not succeed (AI-035), in either version's words.
func unfailed(result []byte) error {
	type task struct {
		Status struct {
			State string `json:"state"`
		} `json:"status"`
	}

	var (
		own     task
		wrapped struct {
			Task task `json:"task"`
		}
	)

	// Only a task has a state, so another result leaves both empty.
	_, _ = json.Unmarshal(result, &own), json.Unmarshal(result, &wrapped)
	for _, state := range []string{own.Status.State, wrapped.Task.Status.State} {
		switch strings.ToLower(strings.TrimPrefix(state, "TASK_STATE_")) {
		case "failed", "rejected", "canceled", "cancelled":
			return directory.Refuse(directory.AgentFailed, "the agent's task has ended as %q", oneLine(state))
		}
	}

	return nil
}
