# What a node needs before its parts start: folders, an address and settings of the kernel that nobody else sees.
# It runs as the first process of namespaces of its own, so all that is done here ends with it.  $1: its folder.
set -e
read -r pid rest < /proc/self/stat  # as the machine counts processes
mount -t proc proc /proc
for place in /run /var/lib /var/log; do mount -t tmpfs tmpfs $place; done
# The kubelet sets these, for the whole machine.
for name in kernel/keys/root_maxbytes kernel/keys/root_maxkeys kernel/panic kernel/panic_on_oops vm/overcommit_memory vm/panic_on_oom; do
    own=/run/$(basename $name)
    cat /proc/sys/$name > $own
    mount --bind $own /proc/sys/$name
done
ip link set lo up
ip link add node type veth peer name outside
ip address add 192.0.2.1/24 dev node
ip link set node up
ip link set outside up
ip route add default dev node
echo 1 > /proc/sys/net/ipv4/ip_forward
# What begins a connection between pods is let through by network policies; probes of the kubelet always are.
for rule in "-m owner --uid-owner 0 -j ACCEPT" "-m conntrack --ctstate ESTABLISHED,RELATED -j ACCEPT" "-j NFQUEUE --queue-num 100"; do
    iptables -t mangle -A POSTROUTING $rule
done
echo "$pid" > "$1/pid"
exec sleep infinity
