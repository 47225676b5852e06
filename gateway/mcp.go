package gateway

import (
	"context"
	"fmt"
	"net/http"
	"slices"
	"strconv"
	"strings"

	"github.com/go-json-experiment/json"
	"github.com/go-json-experiment/json/jsontext"
	"github.com/modelcontextprotocol/go-sdk/mcp"

	"github.com/roster-mesh/roster/directory"
	"github.com/roster-mesh/roster/directory/invoke"
	"github.com/roster-mesh/roster/directory/strictjson"
)

// callMCP calls a tool of the agent's MCP server (gaikwad 5.3). Where the
// registration doesn't tell the tools and their schemas, the server is asked. A session that was kept
// and that the server has forgotten meanwhile is replaced, once: nothing was done in it.
func (i *invocation) callMCP(ctx context.Context, w *agentTask) (*invoke.Reply, error) {
	target := i.target()
	target.MaxBody, target.Timeout = i.g.cfg.MaxBody, i.g.cfg.Timeout
	ctx, cancel := context.WithTimeoutCause(ctx, target.Timeout,
		refuse(RuleTime, context.DeadlineExceeded, "the exchange took over %s", target.Timeout))
	defer cancel()

	asked := w.Operation
	for session := i.g.sessions.take(i.sessionKey()); ; session = nil {
		// The attempt before has replaced the operation by a tool of its session.
		w.Operation = asked
		use := &exchange{next: i.g.cfg.Guard.Client(target).Transport, ctx: ctx, most: target.MaxBody, i: i}

		had := session != nil
		if !had {
			var err error
			if session, err = i.g.sessions.open(i, use, target); err != nil {
				return nil, use.cause(err)
			}
		}

		session.now.Store(use)
		reply, err := i.ask(ctx, session, use, w)
		i.g.sessions.leave(session, use)

		if err == nil || !had || !use.lost() || ctx.Err() != nil {
			return reply, err
		}
	}
}

// ask calls the tool that is meant, in a session.
func (i *invocation) ask(ctx context.Context, session *session, use *exchange, w *agentTask) (*invoke.Reply, error) {
	ctx = context.WithValue(ctx, askedKey{}, use)

	name, remembered, err := i.tool(ctx, session, w)
	if err != nil {
		return nil, use.failed(err)
	}

	result, err := session.CallTool(ctx, &mcp.CallToolParams{Name: name, Arguments: jsontext.Value(w.Value)})
	if err != nil {
		return nil, use.failed(err)
	}

	reply, err := replyOf(result)

	// The tool may have a newer output schema than the remembered one. The list is read anew, before the answer is
	// judged.
	if err == nil && remembered && i.checkOutput(ctx, w, reply) != nil {
		if tools, err := session.list(ctx); err != nil {
			use.spoiled.Store(true)
		} else {
			_, _ = i.among(ctx, tools, w) // the input has been accepted, so an error here is ignored
		}
	}

	return reply, err
}

// tool returns the name of the tool to call, and whether it comes from a remembered list
// of the server's tools. A remembered list can only permit a call: before a refusal, the
// server is asked again.
func (i *invocation) tool(ctx context.Context, session *session, w *agentTask) (name string, remembered bool,
	err error) {
	if i.contract.WoA.ToolField == "" && !i.asks {
		return w.Name, false, nil
	}

	if tools, ok := session.listed(); ok {
		before, value := w.Operation, w.Value
		if name, err := i.among(ctx, tools, w); err == nil {
			return name, true, nil
		}

		w.Operation = before
		w.Value = value
	}

	tools, err := session.list(ctx)
	if err != nil {
		return "", false, err
	}

	name, err = i.among(ctx, tools, w)

	return name, false, err
}

// among returns which of a server's tools is meant.
func (i *invocation) among(ctx context.Context, list toolList, w *agentTask) (string, error) {
	woa := i.contract.WoA
	if woa.ToolField == "" {
		return i.pick(ctx, list, w)
	}

	name, err := toolOf(woa, w)
	if err != nil {
		return "", err
	}

	if qualified := woa.ToolSpace + "_" + name; has(list.tools, qualified) || !has(list.tools, name) {
		name = qualified // the bare name is for servers that list no other
	}

	return name, nil
}

// toolOf returns the value that the envelope's tool_field names (WOA-027).
func toolOf(woa invoke.WoATerms, w *agentTask) (string, error) {
	switch woa.ToolField {
	case "agent":
		return woa.ID, nil
	case "operation":
		return w.Name, nil
	}

	if name, _ := strictjson.TextMember(w.Envelope, woa.ToolField); name != "" {
		return name, nil
	}

	return "", directory.Refuse(directory.BadRequest,
		"the agent's tool is named by the envelope's member %q, which is missing", woa.ToolField).
		At("/" + woa.ToolField)
}

func has(tools []tool, name string) bool {
	return slices.ContainsFunc(tools, func(t tool) bool { return t.name == name })
}

// pick finds the tool that is meant among those that a server lists, and judges the
// input by its schema. For a caller from whom the registration's operations are withheld, no error
// tells of tools or of the schema.
func (i *invocation) pick(ctx context.Context, list toolList, w *agentTask) (string, error) {
	var names []string
	for _, t := range list.tools {
		names = append(names, strconv.Quote(t.name))
		if t.name != w.Name && (w.Name != "" || len(list.tools) > 1) {
			continue
		}

		w.Operation = invoke.Operation{Name: t.name, Input: t.input, Output: t.output}
		w.TakeText()

		err := i.judge(ctx, len(w.Value)+len(t.input), w.CheckInput)
		if i.whole != nil {
			w.Operation = invoke.Operation{Name: t.name}
			err = withoutDetails(err)
		}

		return t.name, err
	}

	described := "; it has " + strings.Join(names, ", ")
	if i.whole != nil {
		described = ""
	}

	described = fmt.Sprintf("%.2000s", described)
	if list.missing != "" {
		described += "; " + list.missing
	}

	if w.Name == "" {
		return "", directory.Refuse(directory.BadRequest,
			"the agent has several tools, or none: name one as operation%s", described).At("/operation")
	}

	return "", directory.Refuse(directory.NotFound, "the agent has no tool %.100q%s", w.Name, described)
}

// replyOf returns a tool's output: the structured content, else text that is JSON, else
// the content as it is. A tool's error is the agent's failure (AI-035).
func replyOf(r *mcp.CallToolResult) (*invoke.Reply, error) {
	reply := &invoke.Reply{Status: http.StatusOK, ContentType: "application/json"}

	if r.IsError {
		return nil, directory.Refuse(directory.AgentFailed, "the agent's tool answered with an error")
	}

	if len(r.Content) == 1 && r.StructuredContent == nil {
		if text, ok := r.Content[0].(*mcp.TextContent); ok && jsontext.Value(text.Text).IsValid() {
			reply.Body = []byte(text.Text)
			return reply, nil
		}
	}

	var err error
	if r.StructuredContent != nil {
		reply.Body, err = json.Marshal(r.StructuredContent)
	} else {
		reply.Body, err = r.MarshalJSON()
	}

	return reply, err
}
