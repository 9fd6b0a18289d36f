// Loads the Compose files that are named, as `docker compose config` does, and prints the project as JSON.
package main

import (
	"context"
	"encoding/json"
	"fmt"
	"os"

	"github.com/compose-spec/compose-go/v2/cli"
)

func main() {
	if err := run(os.Args[1:]); err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
}

func run(files []string) error {
	options, err := cli.NewProjectOptions(files, cli.WithOsEnv, cli.WithDefaultProfiles())
	if err != nil {
		return err
	}
	project, err := options.LoadProject(context.Background())
	if err != nil {
		return err
	}
	return json.NewEncoder(os.Stdout).Encode(project)
}
