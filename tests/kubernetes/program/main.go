// All parts of Kubernetes in one program, which runs the part that it is called by.
package main

import (
	"fmt"
	"os"
	"path/filepath"

	"github.com/spf13/cobra"
	"go.etcd.io/etcd/server/v3/etcdmain"
	"k8s.io/client-go/informers"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/tools/clientcmd"
	"k8s.io/component-base/cli"
	kubectl "k8s.io/kubectl/pkg/cmd"
	apiserver "k8s.io/kubernetes/cmd/kube-apiserver/app"
	controllers "k8s.io/kubernetes/cmd/kube-controller-manager/app"
	proxy "k8s.io/kubernetes/cmd/kube-proxy/app"
	scheduler "k8s.io/kubernetes/cmd/kube-scheduler/app"
	kubelet "k8s.io/kubernetes/cmd/kubelet/app"
	"sigs.k8s.io/kube-network-policies/pkg/networkpolicy"
)

var parts = map[string]func() *cobra.Command{
	"apiserver":   apiserver.NewAPIServerCommand,
	"controllers": controllers.NewControllerManagerCommand,
	"etcd":        etcd,
	"kubectl":     kubectl.NewDefaultKubectlCommand,
	"kubelet":     kubelet.NewKubeletCommand,
	"policies":    policies,
	"proxy":       proxy.NewProxyCommand,
	"scheduler":   func() *cobra.Command { return scheduler.NewSchedulerCommand() },
}

func main() {
	part, known := parts[filepath.Base(os.Args[0])]
	if !known {
		fmt.Fprintf(os.Stderr, "%s is no part of Kubernetes\n", os.Args[0])
		os.Exit(2)
	}
	os.Exit(cli.Run(part()))
}

func etcd() *cobra.Command {
	return &cobra.Command{DisableFlagParsing: true, Run: func(*cobra.Command, []string) { etcdmain.Main(os.Args) }}
}

// policies decides about the packets in queue 100 as network policies say, which the plugin of a network does elsewhere.
func policies() *cobra.Command {
	return &cobra.Command{RunE: func(command *cobra.Command, _ []string) error {
		config, err := clientcmd.BuildConfigFromFlags("", os.Getenv("KUBECONFIG"))
		if err != nil {
			return err
		}
		client, err := kubernetes.NewForConfig(config)
		if err != nil {
			return err
		}
		shared := informers.NewSharedInformerFactory(client, 0)
		core := shared.Core().V1()
		controller, err := networkpolicy.NewController(
			client, shared.Networking().V1().NetworkPolicies(), core.Namespaces(), core.Pods(), nil, nil, nil, nil,
			networkpolicy.Config{NodeName: "node", QueueID: 100})
		if err != nil {
			return err
		}
		shared.Start(command.Context().Done())
		return controller.Run(command.Context())
	}}
}
