package mcp

import (
	"cmp"
	"net/http"
	"net/url"
	"slices"
	"strings"

	"github.com/go-json-experiment/json"
	"github.com/go-json-experiment/json/jsontext"

	"github.com/roster-mesh/roster/directory"
	"github.com/roster-mesh/roster/directory/spelling"
	"github.com/roster-mesh/roster/directory/strictjson"
)

// arguments are the arguments of one call of a tool.
type arguments struct {
	of    *tool
	given map[string]jsontext.Value
}

// inPointer escapes the characters that have a meaning in JSON pointers (RFC 6901).
var inPointer = strings.NewReplacer("~", "~0", "/", "~1")

// parseArguments reads the arguments of a call strictly: an unknown argument is refused,
// since to ignore a misspelt filter would answer another question. null is absent.
func (t *tool) parseArguments(data []byte) (arguments, error) {
	args := arguments{t, map[string]jsontext.Value{}}

	if len(data) == 0 || string(data) == "null" {
		data = []byte("{}")
	}

	members, err := directory.ParseObject(data)
	if err != nil {
		return args, err
	}

	for _, member := range members {
		if !slices.ContainsFunc(t.arguments, func(a argument) bool { return a.name == member.Name }) {
			return args, t.refuseArgument(member.Name)
		}

		if string(member.Value) != "null" {
			args.given[member.Name] = member.Value
		}
	}

	// A required argument that is null is missing, too.
	for _, name := range t.required {
		if args.given[name] == nil {
			return args, directory.Refuse(directory.BadRequest, "%s needs the argument %s", t.name, name)
		}
	}

	return args, nil
}

// refuseArgument refuses an argument that the tool doesn't have, and names the one that was
// probably meant.
func (t *tool) refuseArgument(name string) error {
	var names []string
	for _, a := range t.arguments {
		names = append(names, a.name)
	}

	meant := ""
	if near := spelling.Nearest(name, names); near != "" {
		meant = "; is " + near + " meant?"
	}

	return directory.Refuse(directory.BadRequest, "%s has no argument %.100q%s Its arguments are %s", t.name, name,
		cmp.Or(meant, "."), strings.Join(names, ", ")).At("/" + inPointer.Replace(name))
}

// get is a GET of path with those arguments that belong in its query.
func (args arguments) get(path string) (*toolRequest, error) {
	query := url.Values{}
	for _, argument := range args.of.arguments {
		if argument.param == "" {
			continue
		}

		values, err := args.texts(argument.name)
		if err != nil {
			return nil, err
		}

		if len(values) > 0 {
			query[argument.param] = values
		}
	}

	if len(query) > 0 {
		path += "?" + query.Encode()
	}

	return &toolRequest{method: http.MethodGet, target: path}, nil
}

// post is a POST to path whose body has the arguments that don't belong in its query.
func (args arguments) post(path string) (*toolRequest, error) {
	request, err := args.get(path)
	if err != nil {
		return nil, err
	}

	var members []strictjson.Member
	for _, a := range args.of.arguments {
		if value, given := args.given[a.name]; given && a.param == "" {
			members = append(members, strictjson.Member{Name: a.name, Value: value})
		}
	}

	request.method = http.MethodPost
	request.body = strictjson.AppendObject(nil, members)

	return request, nil
}

// registration returns the rid or the agent's name of a registration, and its origin.
func (args arguments) registration() (id, origin string, err error) {
	var named [3]string
	for i, name := range []string{"rid", "agent", "origin"} {
		if named[i], err = args.text(name); err != nil {
			return "", "", err
		}
	}

	rid, agent, origin := named[0], named[1], named[2]
	if (rid == "") == (agent == "") || origin != "" && rid == "" {
		return "", "", directory.Refuse(directory.BadRequest,
			"%s needs either rid, with or without origin, or agent", args.of.name)
	}

	return rid + agent, origin, nil
}

// path returns the path of the registration that the arguments name.
func (args arguments) path() (string, error) {
	id, origin, err := args.registration()
	if err != nil {
		return "", err
	}

	if origin != "" {
		return "/ad/r/" + url.PathEscape(origin) + "/" + url.PathEscape(id), nil
	}

	return "/ad/r/" + url.PathEscape(id), nil
}

// text returns an argument that is one text; "" if it is absent.
func (args arguments) text(name string) (string, error) {
	values, err := args.texts(name)
	if len(values) > 1 {
		err = directory.Refuse(directory.BadRequest, "%s must be one text, got %d", name, len(values)).At("/" + name)
	}

	return strings.Join(values, ""), err
}

// texts returns an argument as a query has it: its value, or those of its elements. The
// route judges whether they are valid.
func (args arguments) texts(name string) ([]string, error) {
	value, given := args.given[name]
	if !given {
		return nil, nil
	}

	items := []jsontext.Value{value}
	if value.Kind() == '[' {
		if err := json.Unmarshal(value, &items); err != nil {
			return nil, err
		}
	}

	var values []string
	for _, item := range items {
		switch item.Kind() {
		case '"':
			var s string
			if err := json.Unmarshal(item, &s); err != nil {
				return nil, err
			}

			values = append(values, s)
		case '0', 't', 'f':
			values = append(values, string(item))
		default:
			return nil, directory.Refuse(directory.BadRequest, "%s must be a text or a list of texts", name).
				At("/" + name)
		}
	}

	return values, nil
}
