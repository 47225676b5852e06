package gateway

import (
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
	discriminators bool // messages and parts say their kind
}

var (
	a2a03 = dialect{send: "message/send", stream: "message/stream", prefix: "/v1", role: "user", discriminators: true}
	a2a10 = dialect{version: "1.0", send: "SendMessage", stream: "SendStreamingMessage", role: "ROLE_USER"}
)

// callA2A sends the input as a message (A2A 0.3 and 1.0: JSON-RPC, HTTP+JSON). An input
// with a member message is a message's own parameters. An input that is a text, alone or as
// the member text, is sent as text, and any other as data.
func (i *invocation) callA2A(ctx context.Context, w *agentTask) (*invoke.Reply, error) {
	dialect := i.dialect()

	params, err := dialect.params(w)
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

// dialect returns the version that the card names for the binding's interface. Of
// an interface of 1.0 that names none it is 1.0; a card's url is of 0.3.
func (i *invocation) dialect() dialect {
	var card struct {
		Interfaces []struct {
			URL     string `json:"url"`
			Version string `json:"protocolVersion"`
		} `json:"supportedInterfaces"`
	}
	if i.e.Document.Kind() == directory.KindA2A && json.Unmarshal(i.e.Document.Bytes(), &card) == nil {
		for _, f := range card.Interfaces {
			if f.URL == i.binding.Endpoint && !strings.HasPrefix(f.Version, "0.") {
				return a2a10
			}
		}
	}

	return a2a03
}

// params returns the parameters of a message with the input.
func (d dialect) params(w *agentTask) ([]byte, error) {
	var members []strictjson.Member
	if w.Value[0] == '{' {
		var err error
		if members, err = directory.ParseObject(w.Value); err != nil {
			return nil, err
		}
	}

	if own, ok := strictjson.FindMember(members, "message"); ok && own[0] == '{' {
		message, err := directory.ParseObject(own)
		if err != nil {
			return nil, err
		}

		if _, named := strictjson.FindMember(message, "messageId"); !named {
			message = append(message, strictjson.Member{Name: "messageId",
				Value: strictjson.AppendString(nil, rand.Text())})
		}

		n := slices.IndexFunc(members, func(m strictjson.Member) bool { return m.Name == "message" })
		members[n].Value = strictjson.AppendObject(nil, message)

		return strictjson.AppendObject(nil, members), nil
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

	return append(strictjson.AppendRaw([]byte{'{'}, "message", append(message, '}')), '}'), nil
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

	_, _ = json.Unmarshal(result, &own), json.Unmarshal(result, &wrapped) // only a task has a state
	for _, state := range []string{own.Status.State, wrapped.Task.Status.State} {
		switch strings.ToLower(strings.TrimPrefix(state, "TASK_STATE_")) {
		case "failed", "rejected", "canceled", "cancelled":
			return directory.Refuse(directory.AgentFailed, "the agent's task has ended as %q", oneLine(state))
		}
	}

	return nil
}
