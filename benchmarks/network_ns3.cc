// Plays a scenario of network_ns3.py with ns-3: a leaf-spine of point-to-point links.
//
// It reads from its standard input
//     leaves spines hosts_per_leaf bits_per_second delay_picoseconds
//     transport (newreno, dctcp, udp) buffer_bytes initial_window least_rto_picoseconds exact
//     count of classes, and for each: threshold_bytes limit_bytes
//     count of flows, and for each: source destination bytes start_picoseconds spine spine_back class capable
// and prints a line for each flow, when its last byte had arrived, in picoseconds after its start, or -1.
// A last line has the packets that lines sent, and for each class marked packets and, not capable and capable,
// those received of datagrams.
#include "ns3/core-module.h"
#include "ns3/internet-module.h"
#include "ns3/network-module.h"
#include "ns3/point-to-point-module.h"
#include "ns3/traffic-control-module.h"

#include <iostream>

using namespace ns3;

static const Time LEAD = MilliSeconds(2); // Connections are open before flows start.
static const uint16_t FIRST_PORT = 1024;

struct Flow {
    uint32_t source, destination, size;
    int64_t start;
    uint32_t spine, back, band, capable;
    uint32_t received = 0;
    int64_t finish = -1;
    Ptr<Socket> socket;
};

static uint32_t leaves, spines, perLeaf, bufferBytes, window, isExact, classCount, flowCount;
static std::string rate, transport;
static int64_t delay, leastRto;
static std::vector<std::pair<uint32_t, uint32_t>> classes;
static std::vector<Flow> flows;
static std::vector<Ptr<PointToPointNetDevice>> devices;
static std::vector<Ptr<QueueDisc>> hostDiscs, switchDiscs;

// A device's queue that holds nothing while the line is busy. ns-3's own holds a packet at least, which has then
// left the queue disc, so that thresholds see one packet less, and a packet of a lower class may go first.
class Line : public Queue<Packet> {
  public:
    static TypeId GetTypeId()
    {
        static TypeId id = TypeId("Line").SetParent<Queue<Packet>>().AddConstructor<Line>();
        return id;
    }
    bool Enqueue(Ptr<Packet> packet) override
    {
        m_held = packet;
        return true;
    }
    Ptr<Packet> Dequeue() override
    {
        Ptr<Packet> packet = m_held;
        m_held = nullptr;
        if (packet) {
            m_gate->GetTxQueue(0)->Stop();
        } else {
            m_gate->GetTxQueue(0)->Start();
            m_disc->Run();
        }
        return packet;
    }
    Ptr<Packet> Remove() override { return Dequeue(); }
    Ptr<const Packet> Peek() const override { return m_held; }
    Ptr<NetDeviceQueueInterface> m_gate;
    Ptr<QueueDisc> m_disc;

  private:
    Ptr<Packet> m_held;
};

// One look-up a packet: less than ns-3's nix-vectors or global routes take.
class Table : public Ipv4RoutingProtocol {
  public:
    uint32_t kind = 0, number = 0; // of a host, a leaf or a spine
    Ptr<Ipv4> ipv4;

    Ptr<Ipv4Route> Through(uint32_t place, const Ipv4Header& header)
    {
        Ptr<Ipv4Route> route = Create<Ipv4Route>();
        route->SetDestination(header.GetDestination());
        route->SetSource(Ipv4Address(0x0a000001 + number)); // read at hosts alone
        route->SetGateway(header.GetDestination());
        route->SetOutputDevice(ipv4->GetNetDevice(place + 1)); // the loopback device comes first
        return route;
    }
    Ptr<Ipv4Route> RouteOutput(Ptr<Packet>, const Ipv4Header& header, Ptr<NetDevice>, Socket::SocketErrno& error) override
    {
        error = Socket::ERROR_NOTERROR;
        return Through(0, header);
    }
    bool RouteInput(Ptr<const Packet> packet, const Ipv4Header& header, Ptr<const NetDevice> device,
                    const UnicastForwardCallback& forward, const MulticastForwardCallback&,
                    const LocalDeliverCallback& deliver, const ErrorCallback&) override
    {
        if (kind == 0) {
            deliver(packet, header, ipv4->GetInterfaceForDevice(device));
            return true;
        }
        uint32_t host = header.GetDestination().Get() - 0x0a000001;
        uint32_t place = host / perLeaf;
        if (kind == 1) {
            place = host / perLeaf == number ? host % perLeaf : perLeaf + SpineOf(packet);
        }
        forward(Through(place, header), packet, header);
        return true;
    }
    static uint32_t SpineOf(Ptr<const Packet> packet)
    {
        uint8_t ports[4];
        packet->CopyData(ports, 4);
        uint32_t from = ports[0] << 8 | ports[1], to = ports[2] << 8 | ports[3];
        return from < to ? flows[from - FIRST_PORT].back : flows[to - FIRST_PORT].spine;
    }
    void NotifyInterfaceUp(uint32_t) override {}
    void NotifyInterfaceDown(uint32_t) override {}
    void NotifyAddAddress(uint32_t, Ipv4InterfaceAddress) override {}
    void NotifyRemoveAddress(uint32_t, Ipv4InterfaceAddress) override {}
    void SetIpv4(Ptr<Ipv4> own) override { ipv4 = own; }
    void PrintRoutingTable(Ptr<OutputStreamWrapper>, Time::Unit) const override {}
};

// Datagrams carry their class; of TCP's packets, acknowledgements go before data at a host.
class ByClass : public PacketFilter {
    bool CheckProtocol(Ptr<QueueDiscItem>) const override { return true; }
    int32_t DoClassify(Ptr<QueueDiscItem> item) const override
    {
        if (transport == "udp") {
            return DynamicCast<Ipv4QueueDiscItem>(item)->GetHeader().GetTos() >> 5;
        }
        return item->GetSize() > 100;
    }
};

// ns-3's DCTCP without what departs from the RFCs:
// - TcpDctcp::GetSsThresh has no least window, and below one segment a sender is silent until its timer fires; and
//   ns-3.44 answers a loss as it answers a mark (RFC 8257, section 3.5: as any TCP).
// - TcpSocketBase::DupAck has no branch for CA_CWR: what is lost in the window after a mark waits for the timer.
//   TcpSocketBase::EnterCwr also ends CA_RECOVERY and CA_LOSS.
// Here a mark leaves the state as it was, and GetSsThresh reduces once a window.
static TcpSocketState::TcpCongState_t before;

class MendedDctcp : public TcpDctcp {
  public:
    static TypeId GetTypeId()
    {
        static TypeId id = TypeId("MendedDctcp").SetParent<TcpDctcp>().AddConstructor<MendedDctcp>();
        return id;
    }
    void CongestionStateSet(Ptr<TcpSocketState>, const TcpSocketState::TcpCongState_t state) override
    {
        m_isLoss = state == TcpSocketState::CA_RECOVERY;
    }
    uint32_t GetSsThresh(Ptr<const TcpSocketState> state, uint32_t inFlight) override
    {
        before = state->m_congState;
        uint32_t least = 2 * state->m_segmentSize;
        if (m_isLoss) {
            m_isLoss = false;
            return std::max(least, inFlight / 2);
        }
        if (before == TcpSocketState::CA_RECOVERY || before == TcpSocketState::CA_LOSS) {
            return state->m_ssThresh;
        }
        if (state->m_ecnState != TcpSocketState::ECN_ECE_RCVD) {
            return std::max(least, inFlight / 2); // the timer
        }
        if (m_isReduced && state->m_lastAckedSeq < m_until) {
            return state->m_cWnd;
        }
        m_isReduced = true;
        m_until = state->m_highTxMark;
        return std::max(least, TcpDctcp::GetSsThresh(state, inFlight));
    }
    void IncreaseWindow(Ptr<TcpSocketState> state, uint32_t segments) override
    {
        if (state->m_ecnState != TcpSocketState::ECN_ECE_RCVD) {
            TcpDctcp::IncreaseWindow(state, segments);
        }
    }
    Ptr<TcpCongestionOps> Fork() override { return CopyObject<MendedDctcp>(this); }

  private:
    bool m_isLoss = false, m_isReduced = false;
    SequenceNumber32 m_until;
};

class MendedRecovery : public TcpClassicRecovery {
  public:
    static TypeId GetTypeId()
    {
        static TypeId id = TypeId("MendedRecovery").SetParent<TcpClassicRecovery>().AddConstructor<MendedRecovery>();
        return id;
    }
    void EnterRecovery(Ptr<TcpSocketState> state, uint32_t duplicates, uint32_t unacked, uint32_t delivered) override
    {
        bool isMark = state->m_congState == TcpSocketState::CA_CWR;
        if (isMark && before >= TcpSocketState::CA_RECOVERY) {
            state->m_congState = before;
            return;
        }
        TcpClassicRecovery::EnterRecovery(state, isMark ? 0 : duplicates, unacked, delivered);
        if (isMark) {
            state->m_congState = TcpSocketState::CA_OPEN;
        }
    }
    Ptr<TcpRecoveryOps> Fork() override { return CopyObject<MendedRecovery>(this); }
};

static Ptr<QueueDisc> Disc(bool isHost)
{
    auto bytes = [](uint32_t count) { return QueueSizeValue(QueueSize(QueueSizeUnit::BYTES, count)); };
    auto red = [&](ObjectFactory& factory, uint32_t threshold, uint32_t limit) {
        factory.SetTypeId("ns3::RedQueueDisc");
        factory.Set("MinTh", DoubleValue(threshold), "MaxTh", DoubleValue(threshold), "QW", DoubleValue(1));
        factory.Set("Gentle", BooleanValue(false), "UseEcn", BooleanValue(true));
        factory.Set("UseHardDrop", BooleanValue(false), "MaxSize", bytes(limit));
    };
    ObjectFactory factory;
    if (!isHost && transport == "dctcp") {
        red(factory, classes[0].first, bufferBytes);
        return factory.Create<QueueDisc>();
    }
    factory.SetTypeId("ns3::FifoQueueDisc");
    factory.Set("MaxSize", bytes(bufferBytes));
    if (!isHost && transport == "newreno") {
        return factory.Create<QueueDisc>();
    }
    ObjectFactory prio("ns3::PrioQueueDisc");
    Ptr<QueueDisc> disc = prio.Create<QueueDisc>();
    disc->AddPacketFilter(CreateObject<ByClass>());
    for (uint32_t place = 0; place < std::max<uint32_t>(classCount, 2); place++) {
        factory.SetTypeId("ns3::FifoQueueDisc");
        factory.Set("MaxSize", bytes(1 << 30));
        if (!isHost) {
            red(factory, classes[place].first, classes[place].second);
        }
        Ptr<QueueDiscClass> child = CreateObject<QueueDiscClass>();
        child->SetQueueDisc(factory.Create<QueueDisc>());
        disc->AddQueueDiscClass(child);
    }
    return disc;
}

static Ptr<PointToPointNetDevice> Device(Ptr<Node> node, bool isHost)
{
    Ptr<PointToPointNetDevice> device = CreateObject<PointToPointNetDevice>();
    device->SetAttribute("DataRate", DataRateValue(DataRate(rate)));
    device->SetMtu(1500);
    device->SetAddress(Mac48Address::Allocate());
    node->AddDevice(device);
    Ptr<NetDeviceQueueInterface> gate = CreateObject<NetDeviceQueueInterface>();
    device->AggregateObject(gate);
    Ptr<QueueDisc> disc = Disc(isHost);
    node->GetObject<TrafficControlLayer>()->SetRootQueueDiscOnDevice(device, disc);
    (isHost ? hostDiscs : switchDiscs).push_back(disc);
    if (isExact) {
        Ptr<Line> line = CreateObject<Line>();
        line->m_gate = gate;
        line->m_disc = disc;
        device->SetQueue(line);
    } else {
        Ptr<Queue<Packet>> queue = CreateObject<DropTailQueue<Packet>>();
        queue->SetMaxSize(QueueSize("1p"));
        gate->GetTxQueue(0)->ConnectQueueTraces(queue);
        device->SetQueue(queue);
    }
    devices.push_back(device);
    Ptr<Ipv4> ipv4 = node->GetObject<Ipv4>();
    uint32_t interface = ipv4->AddInterface(device);
    uint32_t address = 0x0b000000 + 4 * devices.size();
    if (isHost) {
        address = 0x0a000001 + DynamicCast<Table>(ipv4->GetRoutingProtocol())->number;
    }
    ipv4->AddAddress(interface, Ipv4InterfaceAddress(Ipv4Address(address), Ipv4Mask("/32")));
    ipv4->SetUp(interface);
    return device;
}

static void Join(Ptr<Node> one, bool isHost, Ptr<Node> other)
{
    Ptr<PointToPointChannel> channel = CreateObject<PointToPointChannel>();
    channel->SetAttribute("Delay", TimeValue(PicoSeconds(delay)));
    Device(one, isHost)->Attach(channel);
    Device(other, false)->Attach(channel);
}

class Tables : public Ipv4RoutingHelper {
  public:
    uint32_t kind = 0;
    mutable uint32_t count = 0;
    Tables* Copy() const override { return new Tables(*this); }
    Ptr<Ipv4RoutingProtocol> Create(Ptr<Node>) const override
    {
        Ptr<Table> table = CreateObject<Table>();
        table->kind = kind;
        table->number = count++;
        return table;
    }
};

static NodeContainer Nodes(uint32_t kind, uint32_t count)
{
    NodeContainer nodes(count);
    Tables tables;
    tables.kind = kind;
    InternetStackHelper stack;
    stack.SetIpv6StackInstall(false);
    stack.SetRoutingHelper(tables);
    stack.Install(nodes);
    return nodes;
}

static void Received(uint32_t number, Ptr<Socket> socket)
{
    Flow& flow = flows[number];
    while (Ptr<Packet> packet = socket->Recv()) {
        flow.received += packet->GetSize();
    }
    if (flow.received >= flow.size && flow.finish < 0) {
        flow.finish = (Simulator::Now() - LEAD).GetPicoSeconds() - flow.start;
    }
}

static void Accepted(uint32_t number, Ptr<Socket> socket, const Address&)
{
    socket->SetRecvCallback(MakeBoundCallback(&Received, number));
}

static void Send(uint32_t number)
{
    for (uint32_t left = flows[number].size; left > 0;) {
        uint32_t size = transport == "udp" ? std::min(left, 1472u) : left;
        NS_ABORT_MSG_IF(flows[number].socket->Send(Create<Packet>(size)) < 0, "flow " << number << " cannot send");
        left -= size;
    }
}

int main()
{
    Time::SetResolution(Time::PS);
    std::cin >> leaves >> spines >> perLeaf >> rate >> delay;
    std::cin >> transport >> bufferBytes >> window >> leastRto >> isExact >> classCount;
    classes.resize(classCount);
    for (auto& each : classes) {
        std::cin >> each.first >> each.second;
    }
    std::cin >> flowCount;
    flows.resize(flowCount);
    for (Flow& flow : flows) {
        std::cin >> flow.source >> flow.destination >> flow.size >> flow.start >> flow.spine >> flow.back >> flow.band >> flow.capable;
    }
    NS_ABORT_MSG_IF(!std::cin, "the scenario is cut short");
    TypeId law = transport == "dctcp" ? MendedDctcp::GetTypeId() : TcpNewReno::GetTypeId();
    if (transport == "dctcp-unmended") {
        transport = "dctcp";
        law = TcpDctcp::GetTypeId();
    }
    bool isMended = law == MendedDctcp::GetTypeId();
    TypeId recovery = isMended ? MendedRecovery::GetTypeId() : TcpClassicRecovery::GetTypeId();
    Config::SetDefault("ns3::TcpL4Protocol::SocketType", TypeIdValue(law));
    Config::SetDefault("ns3::TcpL4Protocol::RecoveryType", TypeIdValue(recovery));
    Config::SetDefault("ns3::TcpSocketBase::Sack", BooleanValue(false));
    Config::SetDefault("ns3::TcpSocketBase::Timestamp", BooleanValue(false));
    Config::SetDefault("ns3::TcpSocketBase::LimitedTransmit", BooleanValue(false));
    Config::SetDefault("ns3::TcpSocketBase::MinRto", TimeValue(PicoSeconds(leastRto)));
    Config::SetDefault("ns3::TcpSocketBase::ClockGranularity", TimeValue(PicoSeconds(1)));
    Config::SetDefault("ns3::TcpSocket::ConnTimeout", TimeValue(PicoSeconds(leastRto)));
    Config::SetDefault("ns3::TcpSocket::DataRetries", UintegerValue(1000));
    Config::SetDefault("ns3::TcpSocket::DelAckCount", UintegerValue(1));
    Config::SetDefault("ns3::TcpSocket::InitialCwnd", UintegerValue(window));
    Config::SetDefault("ns3::TcpSocket::SegmentSize", UintegerValue(1460));
    Config::SetDefault("ns3::TcpSocket::SndBufSize", UintegerValue(1 << 25));
    Config::SetDefault("ns3::TcpSocket::RcvBufSize", UintegerValue(1 << 25));
    NodeContainer hosts = Nodes(0, leaves * perLeaf), leaf = Nodes(1, leaves), spine = Nodes(2, spines);
    for (uint32_t number = 0; number < leaves * perLeaf; number++) {
        Join(hosts.Get(number), true, leaf.Get(number / perLeaf));
    }
    for (uint32_t number = 0; number < leaves; number++) {
        for (uint32_t up = 0; up < spines; up++) {
            Join(leaf.Get(number), false, spine.Get(up));
        }
    }
    TypeId factory = transport == "udp" ? UdpSocketFactory::GetTypeId() : TcpSocketFactory::GetTypeId();
    for (uint32_t number = 0; number < flowCount; number++) {
        Flow& flow = flows[number];
        uint16_t port = FIRST_PORT + number;
        Ptr<Socket> listener = Socket::CreateSocket(hosts.Get(flow.destination), factory);
        NS_ABORT_MSG_IF(listener->Bind(InetSocketAddress(Ipv4Address::GetAny(), port)) < 0, "no port " << port);
        listener->Listen();
        listener->SetAcceptCallback(MakeNullCallback<bool, Ptr<Socket>, const Address&>(), MakeBoundCallback(&Accepted, number));
        listener->SetRecvCallback(MakeBoundCallback(&Received, number));
        flow.socket = Socket::CreateSocket(hosts.Get(flow.source), factory);
        flow.socket->Bind();
        InetSocketAddress peer(Ipv4Address(0x0a000001 + flow.destination), port);
        if (transport == "udp") {
            flow.socket->Connect(peer);
            flow.socket->SetIpTos(flow.band << 5 | (flow.capable ? 2 : 0));
        } else {
            Simulator::Schedule(MicroSeconds(number % 1000), &Socket::Connect, flow.socket, peer);
        }
        Simulator::Schedule(LEAD + PicoSeconds(flow.start), &Send, number);
    }
    Simulator::Stop(Seconds(20));
    Simulator::Run();
    uint64_t sent = 0;
    for (auto& all : {hostDiscs, switchDiscs}) {
        for (auto& disc : all) {
            sent += disc->GetStats().nTotalSentPackets;
        }
    }
    for (Flow& flow : flows) {
        std::cout << flow.finish << '\n';
    }
    std::cout << sent;
    for (uint32_t place = 0; place < classCount; place++) {
        uint64_t marked = 0, received[2] = {0, 0};
        for (auto& disc : switchDiscs) {
            Ptr<QueueDisc> of = transport == "udp" ? disc->GetQueueDiscClass(place)->GetQueueDisc() : disc;
            marked += of->GetStats().nTotalMarkedPackets;
        }
        for (Flow& flow : flows) {
            received[flow.capable] += flow.band == place ? flow.received / 1472 : 0;
        }
        std::cout << ' ' << marked << ' ' << received[0] << ' ' << received[1];
    }
    std::cout << std::endl;
}
