package setup

import (
	"bufio"
	"errors"
	"fmt"
	"io"
	"strings"
)

// answers are the values that a plan needs, from flags or from the terminal.
type answers struct {
	trustDomain string
	publicURL   string
	members     []string
	identities  string
	ca          string
	port        int
}

// A question asks for one value.
type question struct {
	text     string
	standard string // the answer to an empty line
	set      func(string)
}

// ask asks the questions one by one. An empty line takes the default.
func ask(in io.Reader, out io.Writer, questions []question) error {
	lines := bufio.NewScanner(io.LimitReader(in, 64<<10))

	for _, q := range questions {
		answer := ""
		for answer == "" {
			fmt.Fprint(out, q.text)

			if q.standard != "" {
				fmt.Fprintf(out, " [%s]", q.standard)
			}

			fmt.Fprint(out, ": ")

			if !lines.Scan() {
				return errors.Join(errors.New("the input ended before all questions were answered"), lines.Err())
			}

			if answer = strings.TrimSpace(lines.Text()); answer == "" {
				answer = q.standard
			}
		}

		q.set(answer)
	}

	return nil
}
