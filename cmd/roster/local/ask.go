package local

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
	join        []string
	identities  string
	ca          string
	port        int
}

// A question asks for one value that has no default.
type question struct {
	text string
	set  func(string)
}

// ask asks the questions one by one, each until it is answered.
func ask(in io.Reader, out io.Writer, questions []question) error {
	lines := bufio.NewScanner(io.LimitReader(in, 64<<10))

	for _, q := range questions {
		answer := ""
		for answer == "" {
			fmt.Fprint(out, q.text+": ")

			if !lines.Scan() {
				return errors.Join(errors.New("the input ended before all questions were answered"), lines.Err())
			}

			answer = strings.TrimSpace(lines.Text())
		}

		q.set(answer)
	}

	return nil
}
