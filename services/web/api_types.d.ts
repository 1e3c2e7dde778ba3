// Made by `python -m tests.lint.web_types` from the OpenAPI document; do not edit by hand.

declare namespace Api {
  interface A2AAgentDefOperation {
    op: "create" | "fork" | "get" | "list" | "promote" | "rollback" | "retire";
    name?: string | (string | null);
    overlay?: Record<string, any> | null;
    description?: string | null;
    promote?: boolean | null;
    expect_active?: string | null;
    expires_at?: string | null;
    parent_def_id?: string | null;
    def_id?: string;
    why?: string | null;
    retired?: boolean;
  }
  interface A2AServerCardDefOperation {
    op: "create" | "fork" | "get" | "list" | "promote" | "rollback" | "retire";
    name?: string | (string | null);
    overlay?: Record<string, any> | null;
    description?: string | null;
    promote?: boolean | null;
    expect_active?: string | null;
    expires_at?: string | null;
    parent_def_id?: string | null;
    def_id?: string;
    why?: string | null;
    retired?: boolean;
  }
  interface AccessExplained {
    who: string;
    kind: string;
    tenant_id: string;
    subject: string;
    operation: string;
    allowed: boolean;
    why: string;
    needs: string;
    scopes: string[];
    isolated: boolean;
  }
  interface AcknowledgeLetterBody {
    reason?: string;
  }
  interface ActPage {
    acts: ActShown[];
    next: string;
  }
  interface ActShown {
    act_id: string;
    at: string;
    tenant_id: string;
    who: string;
    token: string;
    token_id: string;
    transport: string;
    request_id: string;
    what: string;
    target: string;
    outcome: string;
    code?: string;
    count?: number;
    ended_at?: string;
    request?: Record<string, any> | any[] | string | number | boolean | null;
    before?: Record<string, any> | any[] | string | number | boolean | null;
    after?: Record<string, any> | any[] | string | number | boolean | null;
  }
  interface ActiveDefinition {
    kind: string;
    name: string;
    tenant_id: string;
    active_def_id: string;
    version: number;
    promoted_at: string;
    promoted_by: string;
    why: string;
    position: string;
  }
  interface ActiveRuns {
    active: number;
    queued: number | null;
  }
  interface AgentCursors {
    agent: string;
    channels: ReaderRow[];
  }
  interface AgentDefOperation {
    op: "create" | "fork" | "get" | "list" | "promote" | "rollback" | "retire" | "verify";
    name?: string | (string | null);
    overlay?: Record<string, any> | null;
    description?: string | null;
    promote?: boolean | null;
    expect_active?: string | null;
    expires_at?: string | null;
    parent_def_id?: string | null;
    def_id?: string;
    why?: string | null;
    retired?: boolean;
    content_sha256?: string;
  }
  interface AgentDefinition {
    name: string;
    provider: string;
    model: string;
    sha256: string;
    effort: string;
    system_prompt: string;
    tools: string[];
    max_tokens: number;
    max_iterations: number;
    unbounded_iterations: boolean;
    retry_attempts: number;
    sampling: Sampling | null;
    volumes: VolumeGrant[];
    unknown_outcome: string;
    run_timeout_s: number;
    candidates: ModelChoice[];
    fallback_on_error: boolean;
    max_fallback_attempts: number;
    rate_limit_cooldown_ms: number;
    pin_after_success: boolean;
    max_concurrent_children: number;
    compaction: Compaction | null;
    interruption: InterruptionTerms | null;
    code_body: string;
    code_blob: BlobRef | null;
    pin: DefinitionPin | null;
    system_prompt_blob: BlobRef | null;
    grants: AgentGrants | null;
    approvals: ApprovalPolicy[];
    output_schema: string;
    output_schema_blob: BlobRef | null;
    output_schema_sha256: string;
    output_retries: number;
  }
  interface AgentDefinitionView {
    name: string;
    source: string;
    description: string;
    provider: string | null;
    model: string | null;
    tools: string[];
    volumes: string[];
    available: boolean;
    unavailable_reason: string | null;
    definition: Record<string, any>;
  }
  interface AgentGrants {
    skills: string[];
    agent_def_scopes: string[];
    evaluation_scopes: string[];
    volume_def_scopes: string[];
    schedule_def_scopes: string[];
    a2a_agent_def_scopes: string[];
    a2a_server_card_def_scopes: string[];
    memory_scopes: string[];
    sql_scopes: string[];
    history_scope: string[];
    channels_publish: string[];
    channels_subscribe: string[];
    memory_quota_bytes: number;
    sql_quota_bytes: number;
    memory_backend: string;
    memory_consolidation: boolean;
    core_blocks: CoreBlock[];
    inherit_core_blocks: boolean;
    memory_inject_max_tokens: number;
    memory_protocol: boolean;
    memory_index_max_bytes: number;
    memory_roots: string;
  }
  interface AgentList {
    agents: Run[];
    next: string | null;
  }
  interface AgentRate {
    tenant: string;
    agent: string;
    runs: number;
    errors: number;
    error_ratio: number;
  }
  interface Aggregate {
    id: string;
    tenant_id: string;
    state: Record<string, any>;
    quarantine: string | null;
    created_at: string;
    updated_at: string;
  }
  interface AggregatePage {
    items: Aggregate[];
    next: string | null;
  }
  interface AggregateRepaired {
    aggregate: string;
    position: string;
  }
  interface AliasTarget {
    provider: string;
    model: string;
  }
  interface AppliedDefinition {
    def_id: string;
    name: string;
    version: number;
    parent_def_id: string;
    description: string;
    created_at: string;
    created_by_agent_id: string;
    created_by_run_id: string;
    retired: boolean;
    bootstrapped_from_static: boolean;
    content_sha256: string;
    definition: Record<string, any>;
    expires_at?: string;
    promoted: boolean;
    deduplicated?: boolean;
    kind: string;
  }
  interface AppliedDefinitions {
    batch: string;
    status: "applied";
    definitions: AppliedDefinition[];
  }
  interface Approval {
    approval_id: string;
    run_id: string;
    agent: string;
    user_id: string;
    status: string;
    tool: string;
    arguments: string;
    arguments_sha256: string;
    question: string;
    rule: string;
    source: string;
    reason: string;
    groups: ApproverGroupRow[];
    group: number;
    votes: ApprovalVoteRow[];
    may_approve: boolean;
    created_at: string;
    expires_at: string;
    ended_at: string | null;
  }
  interface ApprovalApprove {
    reason?: string;
    arguments_sha256?: string;
    surface?: string;
  }
  interface ApprovalDeny {
    reason?: string;
    surface?: string;
  }
  interface ApprovalPage {
    approvals: Approval[];
    total: number;
    next: string | null;
  }
  interface ApprovalPolicy {
    source: string;
    sha256: string;
    version: number;
    text: string;
    text_blob: BlobRef | null;
    is_inherited: boolean;
    agents: string[];
    reads_tree_cost: boolean;
  }
  interface ApprovalVoteRow {
    by: string;
    approved: boolean;
    reason: string;
    surface: string;
    at: string;
  }
  interface ApprovalVoted {
    approval_id: string;
    status: string;
    approvals: number;
  }
  interface ApproverGroupRow {
    subjects: string[];
    scopes: string[];
    approvals: number;
    within_s: number;
  }
  interface Batch {
    results: SpawnResult[];
    spawned: number;
  }
  interface BatchBody {
    spawns: RunBody[];
    mode?: ("join" | "detach") | null;
    timeout_ms?: number | null;
  }
  interface Blame {
    run_id: string;
    agent: string;
    def_id: string;
    version: number;
    source: ("tenant" | "file" | "shared") | null;
    content_sha256: string | null;
    definition_sha256: string | null;
    created_at: string | null;
    created_by: string | null;
    created_by_agent_id: string | null;
    created_by_run_id: string | null;
    description: string | null;
    parent_def_id: string | null;
    promoted_at: string | null;
    promoted_by: string | null;
    promoted_why: string | null;
    promotion_position: string | null;
    is_active_now: boolean;
    file: FileNow | null;
    skills: PinnedSkill[] | null;
  }
  interface BlobRef {
    sha256: string;
    size_bytes: number;
    media_type: string;
  }
  interface BlobText {
    blob: BlobRef;
  }
  interface BlockBody {
    type: "trusted-text" | "untrusted-block" | "image";
    text?: string | null;
    kind?: string | null;
    cacheable?: boolean | null;
    media_type?: string | null;
    data?: string | null;
  }
  interface BroadcastRow {
    channel: string;
    message_id?: string;
    dropped_oldest?: number;
    visible_at?: string;
    error?: string;
    code?: string;
  }
  interface BulkAction {
    action: string;
    where: string;
    dry_run: boolean;
    matched?: number;
    more?: boolean;
    runs?: Run[];
    results?: BulkResult[];
    next?: string | null;
  }
  interface BulkBody {
    action: "cancel" | "pause" | "quarantine" | "release" | "resume";
    where: string;
    reason?: string | null;
    dry_run?: boolean | null;
    cursor?: string | null;
  }
  interface BulkResult {
    run_id: string;
    outcome: string;
    position: string | null;
    code: string | null;
    error: string | null;
  }
  interface CallResolved {
    run_id: string;
    call: string;
    repeated: boolean;
  }
  interface CancelBody {
    reason?: string | null;
  }
  interface CancelRunBody {
    reason?: string | null;
    run_id?: string | null;
  }
  interface Cancelled {
    cancelled: boolean;
    agent_id: string;
    run_id: string;
    cascaded: string[];
    status: string;
    reason: string;
  }
  interface Capabilities {
    mcp_allow_dynamic_stdio: boolean;
    http_host_allowlist_configured: boolean;
  }
  interface Channel {
    name: string;
    description: string;
    scope: string;
    semantic: string;
    publisher: string;
    period: string;
    default_ttl: number;
    max_messages: number;
    source: string;
    message_count?: number;
    oldest_visible_at?: string;
    newest_visible_at?: string;
  }
  interface ChannelAck {
    cursor: string;
    reader?: string;
    scope_id?: string;
  }
  interface ChannelAcknowledged {
    ok: boolean;
  }
  interface ChannelAwait {
    channels: string[];
    scope?: string;
    scope_id?: string;
    mode?: "all" | "any" | "at_least";
    n?: number;
    from_cursor?: string;
    max_messages?: number;
    wait_ms?: number;
  }
  interface ChannelAwaited {
    satisfied: boolean;
    timed_out: boolean;
    mode: string;
    fired: string[];
    results: Record<string, ChannelResult>;
    total_messages: number;
    wait_capped_ms?: number;
  }
  interface ChannelBatch {
    channel: string;
    messages: ChannelMessage[];
    next_cursor: string;
    wait_capped_ms?: number;
  }
  interface ChannelBroadcast {
    channels: string[];
    payload: any;
    scope?: string;
    scope_id?: string;
    deliver_at?: string;
    ttl?: number | string | null;
  }
  interface ChannelBroadcasted {
    published: number;
    failed: number;
    results: BroadcastRow[];
  }
  interface ChannelCreate {
    name: string;
    scope?: string | null;
    description?: string | null;
    semantic?: string | null;
    default_ttl?: number | string | null;
    max_messages?: number | null;
    publisher?: string | null;
    period?: number | string | null;
  }
  interface ChannelMessage {
    id: string;
    value: any;
    published_at: string;
    redelivered?: boolean;
    attempt?: number;
    cursor?: string;
    position?: string;
  }
  interface ChannelMessages {
    channel: string;
    messages: ChannelMessage[];
    next_cursor?: string;
  }
  interface ChannelPublish {
    payload: any;
    deliver_at?: string;
    ttl?: number | string | null;
    scope_id?: string;
  }
  interface ChannelPublished {
    msg_id: string;
    channel: string;
    created_at: string;
    visible_at?: string;
    dropped_oldest?: number;
  }
  interface ChannelPurged {
    name: string;
    purged: number;
  }
  interface ChannelQueues {
    channel: string;
    scope: string;
    queues: QueueRow[];
    next: string | null;
  }
  interface ChannelReaders {
    scope: string;
    scope_id: string;
    message_count: number;
    delayed: number;
    leased: number;
    waiting: number;
    awaiting: number;
    readers_count: number;
    published: number;
    oldest_visible_at?: string;
    newest_visible_at?: string;
    next_visible_at?: string;
    channel: string;
    readers: ReaderRow[];
  }
  interface ChannelResult {
    messages: ChannelMessage[];
    next_cursor: string;
  }
  interface ChannelSubscribe {
    from_cursor?: string;
    max_messages?: number;
    wait_ms?: number;
    reader?: string;
    scope_id?: string;
  }
  interface ChannelUpdate {
    description?: string | null;
    semantic?: string | null;
    default_ttl?: number | string | null;
    max_messages?: number | null;
  }
  interface Channels {
    channels: Channel[];
  }
  interface CheckpointList {
    checkpoints: SignedCheckpointJson[];
  }
  interface CloudEvent {
    specversion: "1.0";
    id: string;
    source: string;
    type: string;
    webhook?: string;
    channel?: string;
    scopeid?: string;
    data?: any;
  }
  interface CloudEventAnswer {
    id: string;
    source: string;
    delivery_id: string;
    webhook?: string;
    channel?: string;
    pending?: boolean;
    deduped?: boolean;
  }
  interface CloudEventResult {
    status: "accepted" | "refused";
    id?: string;
    source?: string;
    delivery_id?: string;
    webhook?: string;
    channel?: string;
    pending?: boolean;
    deduped?: boolean;
    code?: string;
    error?: string;
    retry_after_s?: number;
  }
  interface CloudEventResults {
    results: CloudEventResult[];
    accepted: number;
  }
  interface Compacted {
    run_id: string;
    compacted: boolean;
    before_tokens: number;
    after_tokens: number;
    applied: "live" | "marker" | "noop";
  }
  interface Compaction {
    enabled: boolean | null;
    target_percentage: number | null;
    keep_last_n: number | null;
    keep_first: boolean | null;
    autocompact_at_pct: number | null;
    provider: string;
    model: string;
    memory_flush: boolean | null;
  }
  interface CompactionBody {
    enabled?: boolean | null;
    target_percentage?: number | null;
    keep_last_n?: number | null;
    keep_first?: boolean | null;
    autocompact_at_pct?: number | null;
    model?: string | null;
    memory_flush?: boolean | null;
  }
  interface ComparedCall {
    name: string;
    text: string;
    is_error: boolean;
  }
  interface ComparedRun {
    run_id: string;
    at: number;
    status: string;
    stop_reason: string | null;
    failed_children: number;
    agent: string | null;
    definition_sha256: string | null;
    turns: number;
    input_tokens: number;
    output_tokens: number;
    cost_micros: number;
    currency: string | null;
    forked_from: ForkPoint | null;
    state_sha256: string;
  }
  interface ComparedStep {
    who: string;
    turn: number | null;
    seq: number | null;
    text: string;
    calls: ComparedCall[];
    model: string | null;
    stop_reason: string | null;
    input_tokens: number;
    output_tokens: number;
    cost_micros: number;
  }
  interface Concurrency {
    active: number;
    at_work: number;
    queued: number | null;
    per_user: Record<string, number>;
    providers: Record<string, ActiveRuns>;
  }
  interface ConfigInstance {
    version: string;
    commit?: string;
    build_time?: string;
    url?: string;
  }
  interface ConfigLimits {
    max_request_bytes: number;
    max_concurrent_runs: number;
    max_queue_depth: number;
    max_concurrent_runs_per_user: number;
  }
  interface ConfigView {
    generated_at: string;
    view: string;
    instance: ConfigInstance;
    features: Record<string, Feature>;
    providers: OfferedProvider[];
    models: OfferedModel[];
    search: any[];
    user_tiers?: UserTier[];
    limits?: ConfigLimits;
  }
  interface ContextFill {
    used_tokens: number;
    max_tokens: number;
    used_pct: number;
  }
  interface ConversationMessage {
    role: "user" | "assistant";
    content: MessageBlock[];
    reasoning?: string;
  }
  interface CoreBlock {
    label: string;
    scope: string;
    limit_bytes: number;
    read_only: boolean;
  }
  interface CoveredContent {
    counts: Record<string, number>;
    total: number;
  }
  interface CredentialOperation {
    op: "create" | "get" | "list" | "delete";
    name?: string;
    scope?: "agent" | "tenant" | "user";
    scope_id?: string;
    value?: string;
    backend?: string;
    reference?: string;
    expires_at?: string | null;
  }
  interface CredentialRemoved {
    name: string;
    scope: string;
    deleted: boolean;
  }
  interface CredentialRow {
    name: string;
    scope: string;
    backend: string;
    reference?: string;
    created_at: string;
    updated_at: string;
    scope_id?: string;
    expires_at?: string;
    note?: string;
    use_count?: number;
    last_used_at?: string;
    uses?: CredentialUseRow[];
  }
  interface CredentialRows {
    scope: string;
    credentials: CredentialRow[];
  }
  interface CredentialUseRow {
    purpose: string;
    agent?: string;
    user?: string;
    run_id?: string;
    count: number;
    last_used_at: string;
  }
  interface CredentialsRewrapped {
    rewrapped: number;
    deleted: number;
  }
  interface DeadLetterAcknowledgement {
    at: string;
    by: string;
    reason: string;
  }
  interface DeadLetterDetail {
    offset: number;
    at: string;
    kind: string;
    service: string;
    error: string;
    from: string;
    replayed: string[];
    not_replayable: string | null;
    acknowledged: DeadLetterAcknowledgement | null;
    original: DeadLetterOriginal;
  }
  interface DeadLetterList {
    letters: DeadLetterSummary[];
    next: string | null;
  }
  interface DeadLetterOriginal {
    key: string;
    headers: Record<string, string>;
    timestamp: string;
    value_hex: string | null;
    type: string | null;
    payload?: Record<string, any>;
    unreadable?: string;
  }
  interface DeadLetterReplay {
    offset: number;
    position: string;
    repeated: boolean;
  }
  interface DeadLetterSummary {
    offset: number;
    at: string;
    kind: string;
    service: string;
    error: string;
    from: string;
    replayed: string[];
    not_replayable: string | null;
    acknowledged: DeadLetterAcknowledgement | null;
  }
  interface Definition {
    def_id: string;
    name: string;
    version: number;
    parent_def_id: string;
    description: string;
    created_at: string;
    created_by_agent_id: string;
    created_by_run_id: string;
    retired: boolean;
    bootstrapped_from_static: boolean;
    content_sha256: string;
    definition: Record<string, any>;
    expires_at?: string;
    promoted: boolean;
    deduplicated?: boolean;
    kind: string;
    tenant_id: string;
    created_by: string;
    position?: string;
    judgements: JudgementSums;
  }
  interface DefinitionBatch {
    definitions: ({ kind: "agent" | "skill" | "team" | "mcpserver" | "schedule" | "webhook" | "memorybackend" | "documentsource" | "a2aagent" | "a2aservercard"; name: string; overlay?: Record<string, any> | null; parent_def_id?: string | null; expect_active?: string | null })[];
    description?: string | null;
  }
  interface DefinitionDeleted {
    name: string;
    deleted: boolean;
  }
  interface DefinitionDiff {
    from: string | null;
    to: string;
    changes: FieldChange[];
    output_change?: OutputChange;
  }
  interface DefinitionDrawn {
    name: string;
    def_id: string;
    format: string;
    diagram: string;
    preview?: boolean;
  }
  interface DefinitionEntry {
    kind: string;
    name: string;
    tenant_id: string;
    source: "file" | "shared" | "tenant";
    description: string | null;
    active_def_id: string | null;
    active_version: number;
    version_count: number;
    live_version_count: number;
    latest_version: number;
    last_updated: string | null;
    made_by_agent: string | null;
    static_def_id: string | null;
    static_differs: boolean;
    judgements: JudgementCount;
  }
  interface DefinitionLineage {
    root: LineageRow;
    ancestors: LineageRow[];
    descendants: LineageRow[];
    depth: number;
    truncated: boolean;
  }
  interface DefinitionList {
    definitions: DefinitionEntry[];
    next: string | null;
  }
  interface DefinitionNames {
    names: DefinitionNamesRow[];
  }
  interface DefinitionNamesRow {
    name: string;
    tenant_id: string;
    version_count: number;
    live_version_count: number;
    latest_version: number;
    last_updated: string;
    active_def_id?: string;
    active_retired?: boolean;
  }
  interface DefinitionPin {
    def_id: string;
    version: number;
    content_sha256: string;
  }
  interface DefinitionPromoted {
    def_id: string;
    name: string;
    version: number;
    promoted: boolean;
  }
  interface DefinitionRetired {
    def_id: string;
    retired: boolean;
  }
  interface DefinitionRolledBack {
    def_id: string;
    name: string;
    version: number;
    promoted: boolean;
    undone_def_id: string;
  }
  interface DefinitionRuns {
    runs: Run[];
    next: string | null;
  }
  interface DefinitionVerified {
    matches: boolean;
    current_sha256: string;
    current_def_id: string;
    version: number;
    name: string;
    deployed: boolean;
  }
  interface DefinitionVersion {
    def_id: string;
    name: string;
    version: number;
    parent_def_id: string;
    description: string;
    created_at: string;
    created_by_agent_id: string;
    created_by_run_id: string;
    retired: boolean;
    bootstrapped_from_static: boolean;
    content_sha256: string;
    definition: Record<string, any>;
    expires_at?: string;
    promoted: boolean;
    deduplicated?: boolean;
  }
  interface DefinitionVersions {
    name: string;
    versions: DefinitionVersion[];
  }
  interface DefinitionsAt {
    definitions: ActiveDefinition[];
    at: string;
  }
  interface DocumentSourceDefOperation {
    op: "create" | "fork" | "get" | "list" | "promote" | "rollback" | "retire";
    name?: string | (string | null);
    overlay?: Record<string, any> | null;
    description?: string | null;
    promote?: boolean | null;
    expect_active?: string | null;
    expires_at?: string | null;
    parent_def_id?: string | null;
    def_id?: string;
    why?: string | null;
    retired?: boolean;
  }
  interface EndHookBody {
    kind: "channel.publish" | "memory.set" | "http" | "mcp.call";
    on?: ("completed" | "failed" | "cancelled" | "any") | null;
    channel?: string | null;
    scope?: ("agent" | "user" | "tenant" | "global") | null;
    key?: string | null;
    server?: string | null;
    tool?: string | null;
    args?: Record<string, any> | null;
    url?: string | null;
    secret_env?: string | null;
    payload?: any;
  }
  interface EphemeralVolume {
    name: string;
    root_run_id: string;
    path: string;
    mode: string;
    created_at: string;
  }
  interface EphemeralVolumes {
    entries: EphemeralVolume[];
  }
  interface ErasureBody {
    subject: string;
    dry_run?: boolean | null;
    confirm?: string | null;
    reason?: string | null;
  }
  interface ErasureReceipt {
    erasure_id: string;
    tenant: string;
    subject: string;
    at: string;
    by: string;
    reason: string;
    complete: boolean;
    deleted: Record<string, number>;
    positions: string[];
    public_key: string;
    signature: string;
  }
  interface ErasureRecord {
    erasure_id: string;
    at: string;
    by: string;
    reason: string;
    position: string;
    in_clear?: boolean;
  }
  interface ErasureResult {
    tenant: string;
    subject: string;
    known: boolean;
    credentials?: SubjectCredential[];
    residue: Residue;
    tier3_residue: Residue;
    errors: string[];
    notes: string[];
    dry_run: boolean;
    deleted: Record<string, number>;
    retained: Record<string, string>;
    erasure_id?: string;
    cancelled_runs?: string[];
    tier2_uncovered?: UncoveredContent;
    incomplete?: string[];
    complete?: boolean;
    receipt?: ErasureReceipt;
  }
  interface Error {
    code: string;
    error: string;
  }
  interface Evaluation {
    eval_id: string;
    run_id: string;
    def_id: string;
    score: number;
    dimensions: Record<string, number>;
    judgement: any;
    rationale: string;
    emitter_role: string;
    emitter_agent_id: string;
    emitter_run_id: string;
    created_at: string;
  }
  interface EvaluationAggregated {
    def_id: string;
    count: number;
    score: EvaluationSums;
    dimensions?: Record<string, EvaluationSums>;
    by_emitter_role?: Record<string, EvaluationSums>;
    lineage_included: boolean;
  }
  interface EvaluationOperation {
    op: "submit" | "get" | "list_for_run" | "list_for_def" | "aggregate";
    run_id?: string;
    score?: number;
    dimensions?: Record<string, number> | null;
    judgement?: any;
    rationale?: string | null;
    eval_id?: string;
    limit?: number | null;
    cursor?: string | null;
    def_id?: string;
    include_lineage?: boolean | null;
  }
  interface EvaluationSubmitted {
    eval_id: string;
    run_id: string;
    def_id: string;
    score: number;
    emitter_role: string;
    created_at: string;
  }
  interface EvaluationSums {
    mean: number;
    median: number;
    min: number;
    max: number;
    latest: number;
    count: number;
  }
  interface EvaluationsOfDefinition {
    def_id: string;
    evaluations: Evaluation[];
    next?: string;
  }
  interface EvaluationsOfRun {
    run_id: string;
    evaluations: Evaluation[];
    next?: string;
  }
  interface EventList {
    events: EventRecord[];
    next: string | null;
    resume: string | null;
  }
  interface EventRecord {
    position: string;
    topic: string;
    partition: number;
    offset: number;
    term: number;
    seq: number;
    run_id: string;
    tenant_id: string;
    type: string;
    at: string;
    cause_id: string | null;
    cause_offset: number | null;
    stale: boolean;
    payload: Record<string, any>;
  }
  interface Feature {
    available: boolean;
    backend?: string;
  }
  interface FieldChange {
    field: string;
    before?: any;
    after?: any;
    diff?: string[];
  }
  interface FileNow {
    def_id: string;
    differs_from_pin: boolean | null;
  }
  interface FinalUsage {
    input_tokens: number;
    output_tokens: number;
    cache_creation_input_tokens?: number;
    cache_read_input_tokens?: number;
    model?: string;
    provider?: string;
  }
  interface FoldedAggregate {
    aggregate: string;
    seq: number;
    quarantine: string | null;
    state: Record<string, any> | null;
    position: string;
  }
  interface ForkBody {
    at: number;
    agent?: string | null;
    definition?: string | null;
    overrides?: ({ temperature?: number | null; top_p?: number | null; top_k?: number | null; frequency_penalty?: number | null; presence_penalty?: number | null; seed?: number | null; stop?: string[] | null; provider?: string | null; model?: string | null; effort?: ("" | "low" | "medium" | "high") | null; system_prompt?: string | null; tools?: string[] | null; max_tokens?: number | null; max_iterations?: number | null; retry_attempts?: number | null }) | null;
    prompt?: string | null;
    segments?: SegmentBody[] | null;
    agent_id?: string | null;
    interactive?: boolean | null;
    user_bearer?: string | null;
    user_credentials?: Record<string, string> | null;
    idempotency_key?: string | null;
  }
  interface ForkPoint {
    run_id: string;
    first_offset: number;
    last_offset: number;
    seq: number;
    digest: string;
  }
  interface ForkedFrom {
    run_id: string;
    seq: number;
  }
  interface Health {
    ok: true;
    version: string;
    commit: string;
    built: string;
    uptime_seconds: number;
    metrics_enabled: boolean;
    replica_id: string;
    replicas: string[];
  }
  interface HealthCheck {
    name: string;
    state: string;
    text: string;
    remedy: string;
  }
  interface HealthReport {
    ok: boolean;
    checks: HealthCheck[];
  }
  interface Hook {
    id: string;
    tenant_id: string;
    owner: string;
    name: string;
    phase: string;
    agents: string[];
    tools: string[];
    callback_url: string;
    fail_mode: string;
    timeout_ms: number;
    registered_at: string;
  }
  interface HookBody {
    owner: string;
    name: string;
    phase: string;
    callback_url: string;
    agents?: string[] | null;
    tools?: string[] | null;
    fail_mode?: string | null;
    timeout_ms?: number | null;
  }
  interface HookCreated {
    id: string;
    signing_secret: string | null;
  }
  interface HookList {
    hooks: Hook[];
  }
  interface HookRemoved {
    deleted: string;
  }
  interface Imported {
    run_id: string;
    imported: boolean;
    runs: ImportedRun[];
  }
  interface ImportedRun {
    run_id: string;
    imported: boolean;
  }
  interface InputAcknowledged {
    run_id: string;
    delivered: true;
  }
  interface InputBody {
    text: string;
    source?: ("api" | "webui") | null;
  }
  interface InsightsMinute {
    start_ms: number;
    runs: number;
    completed: number;
    failed: number;
    cancelled: number;
    tokens: number;
    input_tokens: number;
    output_tokens: number;
    cost_micros: Record<string, number>;
    duration_ms: Percentiles;
    models: ModelLatency[];
    model_calls: number;
    model_errors: number;
    tool_calls: number;
    tool_errors: number;
  }
  interface InsightsReport {
    at_ms: number;
    is_whole: boolean;
    lag_records: number;
    history_minutes: number;
    windows: Record<string, InsightsWindow>;
    minutes: InsightsMinute[];
    records: Record<string, number>;
    parked: Record<string, number>;
  }
  interface InsightsWindow {
    covered_s: number;
    runs: number;
    runs_per_minute: number;
    statuses: Record<string, number>;
    error_ratio: number;
    input_tokens_per_minute: number;
    output_tokens_per_minute: number;
    cost_micros_per_minute: Record<string, number>;
    duration_ms: Percentiles;
    agents: AgentRate[];
    models: ModelRate[];
    tools: ToolRate[];
    partitions: Record<string, number>;
  }
  interface InspectedUser {
    tenant: string;
    subject: string;
    activity: UserActivityFacts;
    chats: number;
    memory: Record<string, number>;
    budget: UserBudget;
    usage: UserUsage;
    tokens: number;
    errors: string[];
    notes: string[];
  }
  interface Interrupt {
    interrupt_id: string;
    run_id: string;
    session_id: string | null;
    agent_id: string | null;
    agent: string | null;
    tenant_id: string | null;
    user_id: string | null;
    tool_use_id: string | null;
    kind: string | null;
    status: string | null;
    question: string | null;
    options: string[];
    context: string | null;
    priority: string | null;
    created_at: string | null;
    expires_at: string | null;
    resolved_at: string | null;
    answer: string | null;
    resolved_by: string | null;
    seq: number;
  }
  interface InterruptBody {
    kind?: string | null;
    answer?: string | null;
    resolved_by?: string | null;
    disposition?: string | null;
  }
  interface InterruptList {
    interrupts: Interrupt[];
    total: number;
    next: string | null;
  }
  interface InterruptResolved {
    interrupt_id: string;
    status: string;
    resolved_at: string;
  }
  interface InterruptionTerms {
    enabled: boolean;
    kinds: string[];
    max_pending: number;
    default_timeout_ms: number;
    max_timeout_ms: number;
  }
  interface JudgementCount {
    count: number;
    mean: number | null;
  }
  interface JudgementSums {
    count: number;
    mean: number | null;
    min: number | null;
    max: number | null;
  }
  interface Kept {
    what: string;
    max_age_ms: number | null;
  }
  interface KeysRewrapped {
    wrapped: number;
  }
  interface LeftOut {
    family: string;
    aggregates: number | null;
    events: number;
    reason: string;
  }
  interface Library {
    entries: LibraryEntry[];
  }
  interface LibraryEntry {
    name: string;
    source: "both" | "dynamic-only" | "static-only";
    in_static: boolean;
    in_substrate: boolean;
    version_count: number;
    live_version_count: number;
    latest_version: number;
    active_def_id: string | null;
    active_retired: boolean;
    last_updated: string | null;
    static_definition: Record<string, any> | null;
  }
  interface Limit {
    tenant_id: string;
    scope: string;
    scope_id: string;
    soft_limit: number | null;
    hard_limit: number | null;
    used: number;
    reserved: number;
    strict: boolean;
    soft_limit_micros: number | null;
    hard_limit_micros: number | null;
    used_micros: number;
    reserved_micros: number;
    currency: string | null;
    updated_at: string;
    updated_by: string;
  }
  interface LimitBody {
    scope: "operator" | "tenant" | "user";
    tenant_id?: string | null;
    scope_id?: string | null;
    soft_limit?: number | null;
    hard_limit?: number | null;
    soft_limit_micros?: number | null;
    hard_limit_micros?: number | null;
    strict?: boolean | null;
  }
  interface LimitList {
    limits: Limit[];
  }
  interface LimitNotice {
    scope: string;
    scope_id: string;
    severity: string;
    window: string;
    unit: string;
    used: number;
    limit: number;
    message: string;
  }
  interface LineageRow {
    def_id: string;
    name: string;
    version: number;
    parent_def_id: string;
    retired: boolean;
  }
  interface LogPage {
    topic: string;
    partition: number;
    beginning_offset: number;
    end_offset: number;
    records: LoggedRecord[];
    scanned: number;
    next: string | null;
    next_offset: number;
  }
  interface LogPartition {
    partition: number;
    beginning_offset: number;
    next_offset: number;
    offsets: number;
  }
  interface LogTopic {
    name: string;
    kind: string;
    about: string;
    has_terms: boolean;
    is_compacted: boolean;
    retention_ms: number | null;
    retention_bytes: number | null;
    replicas: number;
    offsets: number;
    partitions: LogPartition[];
  }
  interface LogTopicList {
    topics: LogTopic[];
  }
  interface LoggedRecord {
    position: string;
    topic: string;
    partition: number;
    offset: number;
    kind: string;
    stale: boolean;
    term: number | null;
    term_in_force: number | null;
    seq: number | null;
    run_id: string | null;
    tenant_id: string | null;
    type: string | null;
    at: string;
    cause_id: string | null;
    cause_offset: number | null;
    key: string | null;
    headers: Record<string, string>;
    prev_hash: string | null;
    size_bytes: number;
    error: string | null;
    value_base64: string | null;
    payload: Record<string, any>;
  }
  interface LoginConfig {
    login_origins: string[];
    open_mode: boolean;
    version: string;
    issuers?: LoginIssuer[];
  }
  interface LoginIssuer {
    name: string;
    title: string;
    page: boolean;
    issuer: string;
    device_client_id: string;
    scopes: string[];
  }
  interface MCPServerDefOperation {
    op: "create" | "fork" | "get" | "list" | "promote" | "rollback" | "retire" | "verify" | "rediscover";
    name?: string | (string | null);
    overlay?: Record<string, any> | null;
    description?: string | null;
    promote?: boolean | null;
    expect_active?: string | null;
    expires_at?: string | null;
    discover?: boolean | null;
    parent_def_id?: string | null;
    def_id?: string;
    why?: string | null;
    retired?: boolean;
    content_sha256?: string;
  }
  interface MadeVolumes {
    volumes: Volume[];
  }
  interface McpAnswer {
    jsonrpc: string;
    id: string | number | null;
    result?: Record<string, any>;
    error?: Record<string, any>;
  }
  interface McpClientDocument {
    client_id: string;
    client_name: string;
    redirect_uris: string[];
    grant_types?: string[];
    response_types?: string[];
    token_endpoint_auth_method?: string;
  }
  interface McpListedTool {
    name: string;
    server_name: string;
    description: string;
    effect: string;
    input_schema: Record<string, any>;
  }
  interface McpLogin {
    scope?: "tenant" | "user";
    scope_id?: string;
    scopes?: string[];
  }
  interface McpLoginBegun {
    name: string;
    url: string;
    expires_at: string;
  }
  interface McpMessage {
    jsonrpc: "2.0";
    id?: string | number;
    method: string;
    params?: Record<string, any>;
  }
  interface McpServer {
    name: string;
    source: "file" | "shared" | "tenant";
    transport: string;
    url: string;
    description: string;
    def_id: string;
    revision: string;
    tool_count: number;
    digest: string;
    listed_at: string;
    authorization: "granted" | "needs_authorization" | "none";
    error: string;
  }
  interface McpServerList {
    servers: McpServer[];
  }
  interface McpToolList {
    server: McpServer;
    tools: McpListedTool[];
    problems: string[];
  }
  interface Me {
    tenant_id: string;
    subject: string;
    name: string;
    scopes: string[];
    is_admin: boolean;
    is_isolated: boolean;
    legacy: boolean;
    open_mode: boolean;
    capabilities: Capabilities;
  }
  interface MemoryAt {
    scope: string;
    scope_id: string;
    key: string;
    existed: boolean;
    value: any;
    version: MemoryVersion | null;
  }
  interface MemoryBackendDefOperation {
    op: "create" | "fork" | "get" | "list" | "promote" | "rollback" | "retire";
    name?: string | (string | null);
    overlay?: Record<string, any> | null;
    description?: string | null;
    promote?: boolean | null;
    expect_active?: string | null;
    expires_at?: string | null;
    parent_def_id?: string | null;
    def_id?: string;
    why?: string | null;
    retired?: boolean;
  }
  interface MemoryBackfillEmbeddings {
    scope: string;
    scope_id: string;
    dry_run: boolean;
    candidates: number;
    embedded: number;
    failed: number;
    skipped_empty: number;
    more: boolean;
  }
  interface MemoryEmbedStats {
    tenant: string;
    models: MemoryModelRow[];
    total_embedding_bytes: number;
    notes?: string[];
  }
  interface MemoryEntries {
    scope: string;
    scope_id: string;
    entries: MemoryRow[];
    truncated: boolean;
    embedding_metadata?: Record<string, MemoryModel>;
  }
  interface MemoryEntry {
    scope: string;
    scope_id: string;
    entry?: MemoryRow;
    key?: string;
    versions?: MemoryVersion[];
    next?: string | null;
  }
  interface MemoryFactOrigin {
    origin: string;
    class: string;
    source_session_id: string;
    source_run_id: string;
    origin_available: boolean;
    spans: Record<string, any>[];
  }
  interface MemoryHit {
    key: string;
    kind?: any;
    value: any;
    score?: any;
    rank_score?: any;
    ranks?: any;
    embedded_with?: any;
    expires_at?: any;
    merged?: string[];
    duplicate_of?: string;
    chunk_id?: any;
    document?: any;
    title?: any;
  }
  interface MemoryHits {
    backend_fallback?: boolean;
    entries: MemoryHit[];
    query_embedding_dim?: any;
    truncated?: any;
    sources_applied?: boolean;
    dedup_dropped?: any;
    rank_note?: any;
    note?: string;
  }
  interface MemoryModel {
    provider: string;
    model: string;
    dimension: number;
  }
  interface MemoryModelRow {
    provider: string;
    model: string;
    dimension: number;
    rows: number;
    bytes: number;
  }
  interface MemoryPurgeStaleEmbeddings {
    scope: string;
    scope_id: string;
    dry_run: boolean;
    scanned: number;
    stale: number;
    purged: number;
    truncated: boolean;
  }
  interface MemoryPut {
    value: any;
    embed?: boolean;
    ttl_seconds?: number;
    if_revision?: number;
  }
  interface MemoryReembed {
    scope: string;
    scope_id: string;
    dry_run: boolean;
    rows_total: number;
    current_embedder: MemoryModel;
    rows_to_reembed?: number;
    sample_keys?: string[];
    sample_keys_capped?: boolean;
    rows_reembedded?: number;
    rows_failed?: number;
    failed_keys?: string[];
  }
  interface MemoryRow {
    key: string;
    value: any;
    created_at: string;
    updated_at: string;
    expires_at?: string;
    revision?: number;
    bytes?: number;
    embed?: boolean;
    embedded_with?: MemoryModel | null;
    source?: Record<string, any>;
    provenance?: MemoryFactOrigin | null;
  }
  interface MemoryScopeDropped {
    scope: string;
    scope_id: string;
    dry_run: boolean;
    keys: number;
    bytes?: number;
  }
  interface MemoryScopeIds {
    scope: string;
    scope_ids: MemoryScopeRow[];
  }
  interface MemoryScopeName {
    name: string;
    description: string;
  }
  interface MemoryScopeRow {
    scope_id: string;
    key_count: number;
    bytes: number;
    updated_at: string;
  }
  interface MemoryScopes {
    scopes: MemoryScopeName[];
  }
  interface MemorySearch {
    scope?: "agent" | "tenant" | "user";
    scope_id?: string;
    query: string;
    top_k?: number | null;
    prefix?: string | null;
    sources?: (("documents" | "facts" | "notes")[]) | null;
    rank?: ({ semantic_weight?: number | null; recency_weight?: number | null; recency_half_life_hours?: number | null; frequency_weight?: number | null; source_weight?: number | null }) | null;
    dedup?: ({ enabled?: boolean | null; threshold?: number | null; mode?: ("drop" | "keep" | "merge") | null }) | null;
  }
  interface MemorySize {
    bytes: number;
    quota_bytes: number;
    keys: number;
  }
  interface MemorySqlQuery {
    scope?: "agent" | "run" | "tenant" | "user";
    statement: string;
    args?: any[];
    scope_id?: string;
  }
  interface MemorySqlRows {
    scope?: string;
    scope_id?: string;
    columns: string[];
    rows: any[][];
    truncated: boolean;
  }
  interface MemorySuperseded {
    scope: string;
    scope_id: string;
    superseded: MemorySupersededRow[];
    next: string | null;
  }
  interface MemorySupersededRow {
    bytes?: number;
    revision: number;
    op: string;
    embed_text?: string;
    provenance?: Record<string, any> | null;
    source?: Record<string, any>;
    by_key?: string;
    reason?: string;
    position: string;
    at: string;
    previous_revision?: number;
    value?: any;
    expires_at?: string;
    key: string;
    valid_from?: string;
  }
  interface MemoryUsage {
    scope: string;
    scope_id: string;
    usage?: MemorySize;
    usage_warning?: string;
    keys_max: number;
  }
  interface MemoryVersion {
    bytes?: number;
    revision: number;
    op: string;
    embed_text?: string;
    provenance?: Record<string, any> | null;
    source?: Record<string, any>;
    by_key?: string;
    reason?: string;
    position: string;
    at: string;
    previous_revision?: number;
    value?: any;
    expires_at?: string;
  }
  interface MemoryWritten {
    scope: string;
    scope_id: string;
    key: string;
    embedded: boolean;
    value?: any;
    embed_warning?: string;
    usage?: MemorySize;
    usage_warning?: string;
  }
  interface MessageBlock {
    type: "text" | "image" | "tool_use" | "tool_result";
    text?: string;
    media_type?: string;
    id?: string;
    name?: string;
    input?: string;
    tool_use_id?: string;
    is_error?: boolean;
    blob?: BlobRef;
  }
  interface MessageBody {
    agent?: string | null;
    session_id?: string | null;
    tenant_id?: string | null;
    user_id?: string | null;
    segments?: SegmentBody[] | null;
    prompt?: string | null;
    tools?: string[] | null;
    allowed_hosts?: string[] | null;
    web_search_filter?: ("drop" | "keep") | null;
    agent_id?: string | null;
    user_tier?: string | null;
    user_bearer?: string | null;
    user_credentials?: Record<string, string> | null;
    parent_context?: (Record<string, string | null>) | null;
    metadata?: Record<string, any> | null;
    run_timeout_seconds?: number | null;
    interactive?: boolean | null;
    sampling?: SamplingBody | null;
    compaction?: CompactionBody | null;
    output_schema?: Record<string, any> | null;
    output_retries?: number | null;
    idempotency_key?: string | null;
  }
  interface ModelAlias {
    name: string;
    provider: string;
    model: string | null;
    model_pattern: string | null;
    effort: string | null;
  }
  interface ModelAliasList {
    aliases: Record<string, AliasTarget>;
    models: ModelAlias[];
  }
  interface ModelChoice {
    provider: string;
    model: string;
    effort: string;
  }
  interface ModelChoiceStatus {
    provider: string;
    model: string;
    primary: boolean;
    available: boolean;
    selected: boolean;
    stalled: boolean;
    rate_limited: boolean;
    reachable: boolean;
  }
  interface ModelLatency {
    provider: string;
    model: string;
    timed_calls: number;
    duration_ms: Percentiles;
  }
  interface ModelRate {
    provider: string;
    model: string;
    calls: number;
    errors: number;
    error_ratio: number;
    timed_calls: number;
    duration_ms: Percentiles;
  }
  interface ModelStatus {
    listed: boolean;
    stalled: boolean;
    rate_limited: boolean;
    rate_limited_until: string | null;
    reason: string | null;
  }
  interface OfferedModel {
    provider: string;
    model: string;
    tiers: string[];
    active: boolean;
    selected: boolean;
  }
  interface OfferedProvider {
    provider: string;
    active: boolean;
  }
  interface OpenToolCall {
    index: number;
    id: string;
    name: string;
    attempt: number;
    channels?: string[];
  }
  interface OperatorTokenOperation {
    op: "create" | "rotate" | "retire" | "get" | "list";
    name?: string | (string | null);
    tenant_id?: string | (string | null);
    subject?: string | null;
    scopes?: string[];
    expires_at?: string | null;
    import_token?: string | null;
    supersede_shared?: boolean;
    def_id?: (string | null) | string;
    grace_seconds?: number | null;
    retired?: boolean;
  }
  interface OutputChange {
    kind: "breaking" | "compatible";
    reasons: string[];
  }
  interface PartitionLag {
    partition: number;
    next_offset: number;
    end_offset: number;
    lag: number;
    term: number | null;
    epoch: number | null;
    owner: string | null;
  }
  interface PartitionList {
    topics: TopicPartitions[];
  }
  interface PartitionOwnership {
    partition: number;
    term: number | null;
    owner: string | null;
    since: string | null;
    reason: string | null;
    takeovers: Takeover[];
    has_more: boolean;
    end_offset: number;
    next_offset: number;
    lag: number;
    projector: string | null;
  }
  interface PauseApplied {
    state: string;
    duration_ms: number;
    force_cancelled_count?: number;
    paused_runs_count: number;
    warnings: string[];
  }
  interface PauseBody {
    timeout_ms?: number | null;
    scope?: ("agent" | "all" | "tenant") | null;
    tenant?: string | null;
    agent?: string | null;
    reason?: string | null;
  }
  interface PauseEntry {
    scope: string;
    tenant: string | null;
    agent: string | null;
    reason: string | null;
    by: string;
    at: string;
  }
  interface PauseLifted {
    state: string;
    resumed_runs_count: number;
  }
  interface PauseState {
    state: string;
    paused_runs_count: number;
    pauses: PauseEntry[];
  }
  interface Pausing {
    run_id: string;
    agent_id: string;
    pausing: true;
  }
  interface Percentiles {
    p50: number | null;
    p95: number | null;
  }
  interface PinnedSkill {
    name: string;
    def_id: string;
    version: number;
    content_sha256: string;
  }
  interface PolicyRollBack {
    version: number;
  }
  interface PolicySetInput {
    rules: Record<string, any>[];
    replaces?: number | null;
  }
  interface PolicyTest {
    rules?: Record<string, any>[] | null;
  }
  interface PolicyTested {
    run_id: string;
    calls: TestedCall[];
    allowed: number;
    denied: number;
    asked: number;
    is_complete: boolean;
  }
  interface PolicyVersion {
    version: number;
    sha256: string;
    rules: Record<string, any>[];
    by: string;
    at: string | null;
    restores: number;
  }
  interface PolicyVersionRow {
    version: number;
    sha256: string;
    by: string;
    at: string;
    restores: number;
  }
  interface PolicyVersions {
    versions: PolicyVersionRow[];
  }
  interface PresetContent {
    name: string;
    kind: string;
    description: string;
    content: string;
  }
  interface PresetList {
    units: PresetSummary[];
  }
  interface PresetSummary {
    name: string;
    kind: string;
    description: string;
  }
  interface ProjectionLag {
    topic: string;
    lag: number;
    problems: number;
    partitions: PartitionLag[];
    projectors: ProjectorStatus[];
  }
  interface ProjectionProblemJson {
    topic: string;
    partition: number;
    offset: number;
    at: string;
    run_id: string | null;
    kind: string;
    error: string;
  }
  interface ProjectionProblemReport {
    count: number;
    problems: ProjectionProblemJson[];
    quarantined_count: number;
    quarantined: QuarantinedAggregate[];
  }
  interface ProjectorStatus {
    topic: string;
    owner: string;
    build: number;
    state: string;
    events_behind: number;
    lag_ms: number;
    applied_events: number;
    stale_records: number;
    said_s_ago: number;
  }
  interface ProtectedResource {
    resource: string;
    authorization_servers: string[];
    scopes_supported: string[];
    bearer_methods_supported: string[];
    resource_name: string;
  }
  interface ProviderAvailability {
    provider: string;
    driver: string;
    dialect: string;
    available: boolean;
    reachable: boolean;
    max_concurrent: number;
    why_not?: string | null;
    excluded: boolean;
    models: Record<string, ModelStatus>;
    last_check: string | null;
    last_error: string | null;
  }
  interface ProviderModels {
    provider: string;
    models: string[];
  }
  interface ProviderStatus {
    provider: string;
    driver: string;
    dialect: string;
    available: boolean;
    reachable: boolean;
    max_concurrent: number;
    why_not?: string | null;
  }
  interface Quarantined {
    run_id: string;
    agent_id: string;
    quarantined: true;
  }
  interface QuarantinedAggregate {
    aggregate: string;
    tenant_id: string | null;
    seq: number;
    reason: string;
    halted_offset: number | null;
  }
  interface QueueRow {
    scope: string;
    scope_id: string;
    message_count: number;
    delayed: number;
    leased: number;
    waiting: number;
    awaiting: number;
    readers_count: number;
    published: number;
    oldest_visible_at?: string;
    newest_visible_at?: string;
    next_visible_at?: string;
  }
  interface QuotaList {
    tenant_id: string;
    quotas: QuotaRow[];
  }
  interface QuotaPut {
    scope: "key" | "tenant" | "user";
    scope_id?: string;
    runs_at_once?: number | null;
    runs_per_minute?: number | null;
    calls_per_minute?: number | null;
    open_streams?: number | null;
    users?: number | null;
    tokens?: number | null;
  }
  interface QuotaRow {
    scope: string;
    scope_id: string;
    runs_at_once?: number;
    runs_per_minute?: number;
    calls_per_minute?: number;
    open_streams?: number;
    users?: number;
    tokens?: number;
  }
  interface ReaderRow {
    channel: string;
    scope: string;
    scope_id: string;
    reader: string;
    cursor: string;
    behind: number;
    waiting?: number;
    leased?: number;
  }
  interface Readiness {
    ready: boolean;
    missing: string[];
    code?: "not_ready";
    error?: string;
  }
  interface ReasonBody {
    reason?: string | null;
  }
  interface RegisteredUser {
    tenant_id: string;
    subject: string;
    display_name: string;
    access_mode: string;
    status: string;
    created_at: string;
    created_by: string;
  }
  interface Released {
    run_id: string;
    agent_id: string;
    released: true;
  }
  interface RepairBody {
    aggregate: string;
    state?: Record<string, any> | null;
    reason?: string | null;
  }
  interface ReplayBody {
    agent: string;
    compress?: boolean | null;
  }
  interface ReplayLetterBody {
    again?: boolean | null;
  }
  interface Resident {
    child_run_id: string;
    agent_id: string;
    agent: string;
    parent_agent_id: string;
    tenant_id: string;
    state: "running" | "awaiting_input" | "completed" | "failed" | "cancelled" | "closed";
    idle_ttl_seconds: number;
    last_used_at: string;
  }
  interface ResidentClosed {
    child_run_id: string;
    state: string;
    closed: true;
  }
  interface ResidentList {
    residents: Resident[];
    next: string | null;
  }
  interface ResidentTurnCancelled {
    child_run_id: string;
    state: "running" | "awaiting_input" | "completed" | "failed" | "cancelled" | "closed";
    cancelled: true;
  }
  interface Residue {
    events_naming?: number;
    definitions?: number;
    rows: number;
    scopes: number;
    sessions_examined: number;
    truncated: boolean;
  }
  interface ResolveBody {
    outcome: "done" | "not_done";
    result?: string | null;
  }
  interface Resolver {
    providers: Record<string, ProviderAvailability>;
    generated_at: string;
  }
  interface RestoreBody {
    json?: any;
    include_history?: boolean | null;
    dry_run?: boolean | null;
    sealed?: boolean | null;
    in_clear?: boolean | null;
  }
  interface Restored {
    dry_run: boolean;
    runs_restored: number;
    runs_continued: number;
    runs_skipped: number;
    runs_failed: number;
    runs_sealed: number;
    events_restored: number;
    pauses_restored: number;
    limits_restored: number;
    blobs_restored: number;
    aggregates_restored: number;
    aggregates_skipped: number;
    aggregates_failed: number;
    aggregate_events_restored: number;
    memory_restored: number;
    left_out: LeftOut[];
    warnings: string[];
    positions: string[];
  }
  interface ResumeBody {
    scope?: ("agent" | "all" | "tenant") | null;
    tenant?: string | null;
    agent?: string | null;
  }
  interface Resumed {
    run_id: string;
    agent_id: string;
    resumed: true;
  }
  interface RetentionView {
    admin: boolean;
    enabled: boolean;
    interval_ms: number;
    defs_mode: string;
    defs_max_age_ms: number;
    defs_keep_last_n: number;
    chats_mode: string;
    chats_max_age_ms: number;
    chats_internal_max_age_ms: number;
    mem_mode: string;
    mem_max_age_ms: number;
    mem_content_mode: string;
    mem_content_max_age_ms: number;
    kept: Kept[];
  }
  interface Routing {
    admin: boolean;
    providers: ProviderStatus[];
    user_tiers: UserTier[];
    operator_key_restricted: boolean;
    search: any[];
    generated_at: string;
  }
  interface Run {
    output_schema_sha256?: string;
    result?: any;
    agent_id: string;
    run_id: string;
    session_id: string;
    agent: string;
    tenant_id: string;
    user_id: string;
    user_tier: string | null;
    parent_agent_id: string | null;
    status: "running" | "completed" | "failed" | "cancelled";
    started_at: string;
    completed_at: string | null;
    last_event_at: string;
    stop_reason: string | null;
    error: string | null;
    error_code: string | null;
    usage: RunUsage;
    cost_micros: number;
    currency: string | null;
    iterations: number;
    tool_calls: number;
    tool_errors: number;
    model_errors: number;
    provider: string;
    model: string;
    context: ContextFill | null;
    compactions: number;
    live: boolean;
    interactive: boolean;
    parked: boolean;
    paused: boolean;
    pause_requested: boolean;
    pause_reason: string | null;
    under_way: string[];
    quarantined: boolean;
    quarantine_error: string | null;
    last_heartbeat_at: null;
    replica_id: null;
    awaited_state: ("interrupted" | "awaiting_input") | null;
    awaited_on: string | null;
    resident: boolean;
    resident_state: ("running" | "awaiting_input" | "completed" | "failed" | "cancelled" | "closed") | null;
    parent_run_id: string | null;
    root_run_id: string;
    depth: number;
    children: number;
    failed_children: number;
    parent_context: Record<string, string> | null;
    metadata: Record<string, any> | null;
    continues_run_id: string | null;
    forked_from: ForkedFrom | null;
    imported_from: string | null;
    definition_sha256: string | null;
    def_id: string | null;
    def_version: number | null;
    traceparent: string | null;
    position: string;
  }
  interface RunBody {
    agent: string;
    session_id?: string | null;
    tenant_id?: string | null;
    user_id?: string | null;
    segments?: SegmentBody[] | null;
    prompt?: string | null;
    tools?: string[] | null;
    allowed_hosts?: string[] | null;
    web_search_filter?: ("drop" | "keep") | null;
    agent_id?: string | null;
    user_tier?: string | null;
    user_bearer?: string | null;
    user_credentials?: Record<string, string> | null;
    parent_context?: (Record<string, string | null>) | null;
    metadata?: Record<string, any> | null;
    run_timeout_seconds?: number | null;
    interactive?: boolean | null;
    sampling?: SamplingBody | null;
    compaction?: CompactionBody | null;
    output_schema?: Record<string, any> | null;
    output_retries?: number | null;
    idempotency_key?: string | null;
    on_complete?: EndHookBody[] | null;
  }
  interface RunComparison {
    a: ComparedRun;
    b: ComparedRun;
    common: SharedEvent | null;
    same: boolean;
    shared_steps: number;
    first: StepPair | null;
    definition: ValueDifference[];
    system: ValueDifference[];
    outcome: ValueDifference[];
    steps: StepPair[];
  }
  interface RunCountsView {
    running: number;
    completed: number;
    failed: number;
    cancelled: number;
    waiting: WaitingCounts;
    is_exact: boolean;
    is_live_exact: boolean;
    counted_max: number;
  }
  interface RunList {
    runs: Run[];
    next: string | null;
  }
  interface RunMetrics {
    run_id: string;
    started_at: string;
    ended_at: string | null;
    mean_rss_bytes: number;
    max_rss_bytes: number;
    max_cpu_pct_x100: number;
    sample_count: number;
  }
  interface RunReplay {
    run_id: string;
    partition: number;
    first_offset: number | null;
    last_offset: number;
    seq: number;
    status: string;
    state_sha256: string;
    tail_digest: string;
    stale: number;
    continues: number;
    compared: boolean;
    not_compared: string | null;
    drift: string[];
    first_drift_seq: number | null;
    events: TimelineEvent[];
  }
  interface RunStateAt {
    phase: "awaiting_model" | "awaiting_tools" | "parked" | "paused" | "compacting" | "ended" | "refused" | "absent";
    turn: number;
    attempt: number | null;
    open_calls: OpenToolCall[];
    reason?: string | null;
    turns?: number;
    usage?: Usage;
    cost_micros?: number;
    currency?: string | null;
    model_errors?: number;
    definition?: AgentDefinition;
    system?: (string | BlobText)[];
    inherited_messages?: number;
    waiting_inputs?: (string | BlobText)[];
    interactive?: boolean;
    quarantined?: string | null;
    run_id: string;
    session_id: string;
    at: number;
    last_seq: number;
    event: TimelineEvent | null;
    status: string;
    messages: ConversationMessage[];
    forked_from: ForkPoint | null;
    forkable: boolean;
    not_forkable: string | null;
    fork_needs_prompt: boolean;
    state_sha256: string;
    tail_digest: string;
    drift: string[];
  }
  interface RunUsage {
    input_tokens: number;
    output_tokens: number;
    cache_creation_input_tokens: number;
    cache_read_input_tokens: number;
    model: string;
    provider: string;
    max_context_tokens: number;
  }
  interface RunnableAgent {
    name: string;
    source: string;
    description: string;
    provider: string | null;
    model: string | null;
    tools: string[];
    volumes: string[];
    available: boolean;
    unavailable_reason: string | null;
  }
  interface RunnableAgents {
    agents: RunnableAgent[];
  }
  interface Sample {
    sample_id: number;
    replica_id: string;
    sampled_at: string;
    active_runs: number;
    queued_runs: number;
    loomcycle_rss_bytes: number;
    loomcycle_cpu_pct_x100: number;
  }
  interface SampleBucket {
    at: string;
    mean_rss_bytes: number;
    max_rss_bytes: number;
    p95_cpu_pct_x100: number;
    active_runs_max: number;
    sample_count: number;
  }
  interface SampleList {
    samples: Sample[];
    next_cursor: number | null;
  }
  interface SampleSummary {
    period: string;
    buckets: SampleBucket[];
  }
  interface Sampling {
    temperature: number | null;
    top_p: number | null;
    top_k: number | null;
    frequency_penalty: number | null;
    presence_penalty: number | null;
    seed: number | null;
    stop: string[];
  }
  interface SamplingBody {
    temperature?: number | null;
    top_p?: number | null;
    top_k?: number | null;
    frequency_penalty?: number | null;
    presence_penalty?: number | null;
    seed?: number | null;
    stop?: string[] | null;
  }
  interface ScheduleDefOperation {
    op: "create" | "fork" | "get" | "list" | "promote" | "rollback" | "retire" | "add_hook" | "remove_hook";
    name?: string | (string | null);
    overlay?: Record<string, any> | null;
    description?: string | null;
    promote?: boolean | null;
    expect_active?: string | null;
    expires_at?: string | null;
    parent_def_id?: string | null;
    def_id?: string;
    why?: string | null;
    retired?: boolean;
    hook?: Record<string, any>;
    hook_index?: number;
  }
  interface ScheduleEntry {
    name: string;
    tenant_id: string;
    source: string;
    in_static: boolean;
    in_substrate: boolean;
    version_count: number;
    active_def_id: string;
    latest_version: number;
    last_updated: string;
    static_definition?: Record<string, any>;
    state?: ScheduleInForce;
  }
  interface ScheduleFire {
    instant: string;
    last_instant?: string;
    count?: number;
    is_at_least?: boolean;
    fired_at?: string;
    late_ms?: number;
    run_id?: string;
    is_manual?: boolean;
    status: string;
    error?: string;
    reason?: string;
    position: string;
  }
  interface ScheduleFiredNow {
    def_id: string;
    scheduled: string;
    run_id?: string;
  }
  interface ScheduleFires {
    def_id: string;
    name: string;
    fires: ScheduleFire[];
    next: string | null;
  }
  interface ScheduleInForce {
    def_id: string;
    name: string;
    tenant_id: string;
    last_run_at?: string;
    last_run_id?: string;
    last_status?: string;
    last_error?: string;
    next_run_at?: string;
    paused_until?: string;
    fires: number;
    max_fires: number;
    overlap: string;
    running: string[];
    queued: string[];
    agent: string;
    times: string;
    timezone: string;
    is_enabled: boolean;
    problem: string;
  }
  interface ScheduleInstant {
    instant: string;
    local: string;
    fires_at: string;
    jitter_ms: number;
  }
  interface ScheduleList {
    entries: ScheduleEntry[];
  }
  interface SchedulePauseState {
    def_id: string;
    paused: boolean;
  }
  interface SchedulePreview {
    def_id: string;
    name: string;
    times: string;
    timezone: string;
    instants: ScheduleInstant[];
  }
  interface ScheduleState {
    def_id: string;
    name: string;
    tenant_id: string;
    last_run_at?: string;
    last_run_id?: string;
    last_status?: string;
    last_error?: string;
    next_run_at?: string;
    paused_until?: string;
    fires: number;
    max_fires: number;
    overlap: string;
    running: string[];
    queued: string[];
  }
  interface ScheduleTimesPreview {
    times: string;
    timezone: string;
    instants: ScheduleInstant[];
  }
  interface SegmentBody {
    role: "system" | "user";
    content: BlockBody[];
  }
  interface SessionCopied {
    new_session_id: string;
    seed_run_id: string;
    events_copied: number;
    compacted: boolean;
  }
  interface SessionSummary {
    id: string;
    session_id: string;
    tenant_id: string;
    user_id: string;
    user_tier: string | null;
    agent: string;
    last_run_id: string;
    last_agent_id: string;
    status: "running" | "completed" | "failed" | "cancelled";
    last_event_at: string;
  }
  interface SharedEvent {
    run_id: string;
    seq: number;
  }
  interface SignedCheckpointJson {
    topic: string;
    partition: number;
    position: string;
    first_offset: number;
    next_offset: number;
    records: number;
    term: number | null;
    at: string;
    key_id: string;
    chain: string;
    signature: "valid" | "invalid" | "unknown_key";
    unsigned: number;
  }
  interface SkillDefOperation {
    op: "create" | "fork" | "get" | "list" | "promote" | "rollback" | "retire" | "verify";
    name?: string | (string | null);
    overlay?: Record<string, any> | null;
    description?: string | null;
    promote?: boolean | null;
    expect_active?: string | null;
    expires_at?: string | null;
    parent_def_id?: string | null;
    def_id?: string;
    why?: string | null;
    retired?: boolean;
    content_sha256?: string;
  }
  interface SnapshotBody {
    label?: string | null;
    tenant?: string | null;
    include_history?: boolean | null;
    include_history_since?: string | null;
    max_bytes?: number | null;
  }
  interface SpawnResult {
    agent_id: string | null;
    run_id: string | null;
    session_id: string | null;
    status: string;
    stop_reason: string | null;
    final_text: string;
    result?: any;
    usage: FinalUsage | null;
    error: string | null;
    error_code: string | null;
    limits: LimitNotice[];
    parent_context: Record<string, string> | null;
    position: string | null;
  }
  interface State {
    format: string;
    schema_version: number;
    created_at: string;
    label: string;
    tenant: string;
    topic: string;
    reducer_version: number;
    include_history: boolean;
    positions: Record<string, number>;
    entity_topic?: string;
    entity_positions?: Record<string, number>;
    further_positions?: Record<string, Record<string, number>>;
    sections: StateSections;
    counts: Record<string, number>;
    sha256: string;
  }
  interface StateAggregate {
    kind: "aggregate";
    aggregate: string;
    tenant: string;
    partition: number;
    first_offset: number;
    events: number;
    tail_digest: string;
    topic?: string;
  }
  interface StateBlobPart {
    sha256: string;
    size_bytes: number;
    media_type: string;
    last: boolean;
    data: string;
  }
  interface StateBlobs {
    version: number;
    entries: StateBlobPart[];
  }
  interface StateEntities {
    version: number;
    entries: (StateAggregate | StateEvent)[];
  }
  interface StateEvent {
    kind: "event";
    offset: number;
    value: string;
  }
  interface StateFile {
    id: string;
    created_at: string;
    created_by: string;
    label: string;
    tenant: string | null;
    schema_version: number;
    byte_size: number;
    sha256: string;
    include_history: boolean;
    runs: number;
    live_runs: number;
    events: number;
    blobs: number;
    pauses: number;
    limits: number;
    aggregates: number;
    aggregate_events: number;
    left_out: LeftOut[];
    positions: string[];
    warnings: string[];
  }
  interface StateFileContent {
    id: string;
    created_at: string;
    created_by: string;
    label: string;
    tenant: string | null;
    schema_version: number;
    byte_size: number;
    sha256: string;
    include_history: boolean;
    runs: number;
    live_runs: number;
    events: number;
    blobs: number;
    pauses: number;
    limits: number;
    aggregates: number;
    aggregate_events: number;
    left_out: LeftOut[];
    positions: string[];
    warnings: string[];
    json_content: State;
  }
  interface StateFileList {
    entries: StateFile[];
  }
  interface StateLimit {
    scope: string;
    tenant: string;
    scope_id: string;
    soft_tokens: number | null;
    hard_tokens: number | null;
    soft_micros: number | null;
    hard_micros: number | null;
    strict: boolean;
    currency: string;
    month: string;
    used_tokens: number;
    used_micros: number;
  }
  interface StateLimits {
    version: number;
    entries: StateLimit[];
  }
  interface StateOmission {
    family: string;
    aggregates: number;
    events: number;
    reason: string;
  }
  interface StateOmissions {
    version: number;
    entries: StateOmission[];
  }
  interface StatePause {
    scope: string;
    tenant: string;
    agent: string;
    reason: string;
    by: string;
    at_ms: number;
    paused: true;
  }
  interface StatePauses {
    version: number;
    entries: StatePause[];
  }
  interface StateRun {
    kind: "run";
    run_id: string;
    tenant: string;
    partition: number;
    first_offset: number;
    events: number;
    tail_digest: string;
    is_over: boolean;
  }
  interface StateRuns {
    version: number;
    entries: (StateRun | StateEvent)[];
  }
  interface StateSchema {
    id: number;
    name: string;
    version: number;
    schema: Record<string, any>;
  }
  interface StateSchemas {
    version: number;
    entries: StateSchema[];
  }
  interface StateSections {
    pauses: StatePauses;
    limits?: StateLimits;
    schemas: StateSchemas;
    blobs: StateBlobs;
    runs: StateRuns;
    entities?: StateEntities;
    left_out?: StateOmissions;
  }
  interface StepPair {
    place: number;
    differs: string[];
    a: ComparedStep | null;
    b: ComparedStep | null;
  }
  interface SubjectCredential {
    name: string;
    scope: string;
    scope_id: string;
  }
  interface SubjectKey {
    key_id: string;
    made_at: string | null;
    erased: boolean;
    erasure: ErasureRecord | null;
  }
  interface SubjectList {
    tenant: string;
    subjects: string[];
  }
  interface SubjectReport {
    tenant: string;
    subject: string;
    known: boolean;
    credentials?: SubjectCredential[];
    residue: Residue;
    tier3_residue: Residue;
    errors: string[];
    notes: string[];
    encrypted: boolean;
    tier1_covered: CoveredContent;
    tier2_uncovered: UncoveredContent;
    keys: SubjectKey[];
    erasures: ErasureRecord[];
  }
  interface Takeover {
    term: number;
    owner: string;
    reason: string;
    liveness_address: string | null;
    at: string;
  }
  interface TeamDefOperation {
    op: "create" | "fork" | "get" | "list" | "promote" | "rollback" | "retire" | "delete" | "verify" | "render_diagram";
    name?: string | (string | null);
    overlay?: Record<string, any> | null;
    description?: string | null;
    promote?: boolean | null;
    expect_active?: string | null;
    expires_at?: string | null;
    parent_def_id?: string | null;
    def_id?: string | (string | null);
    why?: string | null;
    retired?: boolean;
    content_sha256?: string;
    format?: ("" | "mermaid") | null;
    highlight_state?: string | null;
  }
  interface TenantList {
    tenants: TenantRow[];
    notes: string[];
  }
  interface TenantRow {
    tenant: string;
    users: number;
    runs: number;
  }
  interface TestedCall {
    turn: number;
    index: number;
    tool: string;
    outcome: string;
    rule: string;
    reason: string;
    is_undecided: boolean;
    recorded: string;
  }
  interface TierCascade {
    tier: string;
    cascade: ModelChoiceStatus[];
  }
  interface TimelineEvent {
    seq: number;
    offset: number;
    term: number;
    at: string;
    type: string;
    cause_id: string | null;
    payload: Record<string, any>;
  }
  interface TokenMade {
    def_id: string;
    name: string;
    tenant_id: string;
    subject: string;
    allowed_scopes: string[];
    created_at: string;
    created_by: string;
    created_by_agent_id?: string;
    retired: boolean;
    active: boolean;
    token_suffix?: string;
    rotated_from?: string;
    retired_at?: string;
    expires_at?: string;
    imported?: boolean;
    token?: string;
    prior_retires_at?: string;
    warning: string;
  }
  interface TokenNames {
    names: TokenNamesRow[];
  }
  interface TokenNamesRow {
    name: string;
    tenant_id: string;
    version_count: number;
    live_version_count: number;
    latest_version: number;
    last_updated: string;
    active_def_id?: string;
    active_retired?: boolean;
  }
  interface TokenRetiredAnswer {
    def_id: string;
    name: string;
    retired: boolean;
  }
  interface TokenRow {
    def_id: string;
    name: string;
    tenant_id: string;
    subject: string;
    allowed_scopes: string[];
    created_at: string;
    created_by: string;
    created_by_agent_id?: string;
    retired: boolean;
    active: boolean;
    token_suffix?: string;
    rotated_from?: string;
    retired_at?: string;
    expires_at?: string;
    imported?: boolean;
  }
  interface TokenVersions {
    name: string;
    tokens: TokenRow[];
  }
  interface ToolRate {
    tool: string;
    calls: number;
    errors: number;
    error_ratio: number;
  }
  interface TopicPartitions {
    name: string;
    topic: string;
    partitions: PartitionOwnership[];
  }
  interface Transcript {
    session: SessionSummary;
    events: TranscriptFrame[];
    next: string | null;
  }
  interface TranscriptEvent {
    seq: number;
    session_id: string;
    run_id: string;
    tenant_id: string;
    timestamp: string;
    type: string;
    payload: Record<string, any>;
    segments?: Record<string, any>[];
  }
  interface TranscriptEvents {
    events: TranscriptEvent[];
    total: number;
    total_is_exact: boolean;
    limit: number;
    offset: number;
    next: string | null;
  }
  interface TranscriptFrame {
    seq: number;
    run_id: string;
    ts_ns: number;
    type: string;
    event: Record<string, any>;
    payload?: Record<string, any>[];
  }
  interface TurnCancelled {
    run_id: string;
    stopped: true;
    parked: boolean;
  }
  interface UncoveredContent {
    counts: Record<string, number>;
    total: number;
    runs: number;
  }
  interface Usage {
    input_tokens: number;
    output_tokens: number;
    cache_creation_input_tokens: number;
    cache_read_input_tokens: number;
  }
  interface UsageReport {
    group_by: string[];
    from: string | null;
    to: string | null;
    rows: UsageRow[];
  }
  interface UsageRow {
    tenant_id?: string;
    user_id?: string;
    provider?: string;
    model?: string;
    source?: string;
    agent?: string;
    day?: string;
    currency?: string;
    input_tokens: number;
    output_tokens: number;
    cache_creation_input_tokens: number;
    cache_read_input_tokens: number;
    cost: number;
    cost_micros: number;
    call_count: number;
    unpriced_calls: number;
  }
  interface UserActivityFacts {
    running_count: number;
    total_count: number;
    last_started_at?: string;
  }
  interface UserBudget {
    soft: number | null;
    hard: number | null;
  }
  interface UserChange {
    display_name?: string | null;
    access_mode?: ("isolated" | "tenant") | null;
    status?: ("active" | "disabled") | null;
  }
  interface UserChannelAck {
    cursor: string;
    reader?: string;
  }
  interface UserChannelPublish {
    payload: any;
    deliver_at?: string;
    ttl?: number | string | null;
  }
  interface UserChannelSubscribe {
    from_cursor?: string;
    max_messages?: number;
    wait_ms?: number;
    reader?: string;
  }
  interface UserList {
    users: UserRow[];
  }
  interface UserRegister {
    subject: string;
    display_name?: string | null;
    access_mode?: ("isolated" | "tenant") | null;
    status?: ("active" | "disabled") | null;
  }
  interface UserRow {
    user_id: string;
    running_count: number;
    total_count: number;
    last_started_at?: string;
    registered: boolean;
    display_name?: string;
    access_mode?: string;
    status?: string;
  }
  interface UserTier {
    name: string;
    tiers: TierCascade[];
  }
  interface UserTokenMade {
    def_id: string;
    token?: string;
    token_suffix: string;
    name: string;
    scopes: string[];
    created_at: string;
    expires_at?: string;
    warning: string;
  }
  interface UserTokenMint {
    name?: string | null;
    expires_at?: string | null;
  }
  interface UserTokenRevoked {
    def_id: string;
    retired_at: string;
  }
  interface UserTokenRow {
    def_id: string;
    name: string;
    scopes: string[];
    created_at: string;
    expires_at?: string;
    retired_at?: string;
    active: boolean;
  }
  interface UserTokens {
    subject: string;
    tokens: UserTokenRow[];
  }
  interface UserUsage {
    calls: number;
    cost: number;
  }
  interface ValueDifference {
    name: string;
    a: any;
    b: any;
  }
  interface VerifyBody {
    run_id?: string | null;
    partition?: number | null;
    since?: string | null;
    entities?: boolean | null;
    channels?: boolean | null;
    max_unsigned_s?: number | null;
    blobs?: boolean | null;
  }
  interface Volume {
    name: string;
    path: string;
    mode: string;
    ephemeral?: boolean;
    created_at: string;
    updated_at?: string;
    mount_warning?: string;
  }
  interface VolumeDefOperation {
    op: "create" | "get" | "list" | "delete" | "purge";
    name?: string;
    mode?: ("" | "ro" | "rw") | null;
    ephemeral?: boolean | null;
    mount_at?: string | null;
    why?: string | null;
  }
  interface VolumeEntry {
    name: string;
    source: "dynamic" | "shared" | "static";
    path: string;
    mode: string;
    default: boolean;
    dynamic_root: boolean;
    created_at?: string;
  }
  interface VolumeGrant {
    name: string;
    mode: string;
    is_default: boolean;
  }
  interface VolumeRemoved {
    name: string;
    deleted: boolean;
    files_removed: boolean;
  }
  interface Volumes {
    entries: VolumeEntry[];
  }
  interface WaitingCounts {
    awaiting_input: number;
    interrupted: number;
    pause_requested: number;
    quarantined: number;
  }
  interface WebhookAnswer {
    webhook_name: string;
    delivery_id: string;
    run_id?: string;
    channel?: string;
    pending?: boolean;
    deduped?: string;
    agent_id?: string;
    status?: string;
    final_text?: string;
    result?: any;
  }
  type WebhookBody = any;
  interface WebhookDefOperation {
    op: "create" | "fork" | "get" | "list" | "promote" | "rollback" | "retire";
    name?: string | (string | null);
    overlay?: Record<string, any> | null;
    description?: string | null;
    promote?: boolean | null;
    expect_active?: string | null;
    expires_at?: string | null;
    parent_def_id?: string | null;
    def_id?: string;
    why?: string | null;
    retired?: boolean;
  }
  interface WebhookDeliveries {
    webhook_name: string;
    tenant_id: string;
    deliveries: WebhookDelivery[];
  }
  interface WebhookDelivery {
    delivery_id?: string;
    verdict: string;
    received_at: string;
    run_id?: string;
    channel?: string;
    def_id?: string;
    status?: string;
    code?: string;
    detail?: string;
    replay_of?: string;
    by?: string;
    run_metadata?: any;
    position?: string;
    source_position?: string;
    count?: number;
  }
  interface WebhookRefusal {
    error: string;
    detail?: string;
    secret_env?: string;
    webhook_name?: string;
    delivery_id?: string;
    run_id?: string;
    code: string;
  }
  interface WebhookReplay {
    delivery_id: string;
  }
  interface WebhookReplayed {
    webhook_name: string;
    replay_of: string;
    delivery_id?: string;
    run_id?: string;
    channel?: string;
    pending?: boolean;
  }
  interface WebhookReport {
    would_accept: boolean;
    verdict: string;
    detail?: string;
    delivery_id?: string;
    run_input_preview?: WebhookRunPreview | null;
    channel?: string;
  }
  interface WebhookRunPreview {
    agent: string;
    user_id: string;
    goal: string;
    run_metadata: Record<string, any>;
    credential_keys: string[];
  }
  /** Method, path, answer and body of each route. */
  type Route =
    | ["GET", `/.well-known/oauth-protected-resource`, ProtectedResource, any]
    | ["GET", `/.well-known/oauth-protected-resource/v1/_mcp`, ProtectedResource, any]
    | ["GET", `/healthz`, Health, any]
    | ["GET", `/metrics`, string, any]
    | ["GET", `/readyz`, Readiness, any]
    | ["GET", `/ui/login-config.json`, LoginConfig, any]
    | ["POST", `/ui/logout`, null, any]
    | ["POST", `/ui/session`, null, any]
    | ["POST", `/v1/_a2aagentdef`, DefinitionVersion | DefinitionVersions | DefinitionPromoted | DefinitionRolledBack | DefinitionRetired, A2AAgentDefOperation]
    | ["GET", `/v1/_a2aagentdef/names`, DefinitionNames, any]
    | ["POST", `/v1/_a2aservercarddef`, DefinitionVersion | DefinitionVersions | DefinitionPromoted | DefinitionRolledBack | DefinitionRetired, A2AServerCardDefOperation]
    | ["GET", `/v1/_a2aservercarddef/names`, DefinitionNames, any]
    | ["GET", `/v1/_access/explain`, AccessExplained, any]
    | ["POST", `/v1/_agentdef`, DefinitionVersion | DefinitionVersions | DefinitionPromoted | DefinitionRolledBack | DefinitionRetired | DefinitionVerified, AgentDefOperation]
    | ["GET", `/v1/_agentdef/names`, DefinitionNames, any]
    | ["GET", `/v1/_approvals`, ApprovalPage, any]
    | ["GET", `/v1/_approvals/policy`, PolicyVersion, any]
    | ["PUT", `/v1/_approvals/policy`, PolicyVersion, PolicySetInput]
    | ["POST", `/v1/_approvals/policy/roll_back`, PolicyVersion, PolicyRollBack]
    | ["POST", `/v1/_approvals/policy/test/${string}`, PolicyTested, PolicyTest]
    | ["GET", `/v1/_approvals/policy/versions`, PolicyVersions, any]
    | ["GET", `/v1/_approvals/${string}/${string}`, Approval, any]
    | ["POST", `/v1/_approvals/${string}/${string}/approve`, ApprovalVoted, ApprovalApprove]
    | ["POST", `/v1/_approvals/${string}/${string}/deny`, ApprovalVoted, ApprovalDeny]
    | ["GET", `/v1/_audit`, ActPage, any]
    | ["GET", `/v1/_audit/checkpoints`, CheckpointList, any]
    | ["POST", `/v1/_audit/verify`, string, VerifyBody]
    | ["GET", `/v1/_callback`, AggregatePage, any]
    | ["GET", `/v1/_callback/show`, Aggregate, any]
    | ["GET", `/v1/_channels`, Channels, any]
    | ["POST", `/v1/_channels`, Channel, ChannelCreate]
    | ["POST", `/v1/_channels/_await`, ChannelAwaited, ChannelAwait]
    | ["POST", `/v1/_channels/_broadcast`, ChannelBroadcasted, ChannelBroadcast]
    | ["POST", `/v1/_channels/${string}`, ChannelPublished, ChannelPublish]
    | ["PATCH", `/v1/_channels/${string}`, Channel, ChannelUpdate]
    | ["DELETE", `/v1/_channels/${string}`, null, any]
    | ["POST", `/v1/_channels/${string}/ack`, ChannelAcknowledged, ChannelAck]
    | ["GET", `/v1/_channels/${string}/peek`, ChannelMessages, any]
    | ["POST", `/v1/_channels/${string}/publish`, ChannelPublished, ChannelPublish]
    | ["POST", `/v1/_channels/${string}/purge`, ChannelPurged, any]
    | ["GET", `/v1/_channels/${string}/queues`, ChannelQueues, any]
    | ["GET", `/v1/_channels/${string}/readers`, ChannelReaders, any]
    | ["GET", `/v1/_channels/${string}/stream`, string, any]
    | ["POST", `/v1/_channels/${string}/subscribe`, ChannelBatch, ChannelSubscribe]
    | ["GET", `/v1/_concurrency/stats`, Concurrency, any]
    | ["POST", `/v1/_credentialdef`, CredentialRow | CredentialRows | CredentialRemoved, CredentialOperation]
    | ["POST", `/v1/_credentialdef/rewrap`, CredentialsRewrapped, any]
    | ["GET", `/v1/_dead_letters`, DeadLetterList, any]
    | ["GET", `/v1/_dead_letters/${string}`, DeadLetterDetail, any]
    | ["POST", `/v1/_dead_letters/${string}/acknowledge`, DeadLetterSummary, AcknowledgeLetterBody]
    | ["POST", `/v1/_dead_letters/${string}/replay`, DeadLetterReplay, ReplayLetterBody]
    | ["GET", `/v1/_definitions`, DefinitionList, any]
    | ["POST", `/v1/_definitions/apply`, AppliedDefinitions, DefinitionBatch]
    | ["GET", `/v1/_definitions/at`, DefinitionsAt, any]
    | ["GET", `/v1/_definitions/${string}`, Definition, any]
    | ["GET", `/v1/_definitions/${string}/diff`, DefinitionDiff, any]
    | ["GET", `/v1/_definitions/${string}/lineage`, DefinitionLineage, any]
    | ["GET", `/v1/_definitions/${string}/runs`, DefinitionRuns, any]
    | ["GET", `/v1/_doctor`, HealthReport, any]
    | ["GET", `/v1/_document/changes`, string, any]
    | ["POST", `/v1/_documentsourcedef`, DefinitionVersion | DefinitionVersions | DefinitionPromoted | DefinitionRolledBack | DefinitionRetired, DocumentSourceDefOperation]
    | ["GET", `/v1/_documentsourcedef/names`, DefinitionNames, any]
    | ["GET", `/v1/_env_template`, string, any]
    | ["GET", `/v1/_erasure`, SubjectReport | SubjectList, any]
    | ["POST", `/v1/_erasure`, ErasureResult, ErasureBody]
    | ["POST", `/v1/_erasure/rewrap`, KeysRewrapped, any]
    | ["POST", `/v1/_evaluation`, EvaluationSubmitted | Evaluation | EvaluationsOfRun | EvaluationsOfDefinition | EvaluationAggregated, EvaluationOperation]
    | ["GET", `/v1/_events`, TranscriptEvents, any]
    | ["GET", `/v1/_insights`, InsightsReport, any]
    | ["GET", `/v1/_library/${string}`, Library, any]
    | ["GET", `/v1/_limits`, LimitList, any]
    | ["PUT", `/v1/_limits`, Limit, LimitBody]
    | ["DELETE", `/v1/_limits`, null, any]
    | ["GET", `/v1/_log/topics`, LogTopicList, any]
    | ["GET", `/v1/_log/topics/${string}/${string}`, LogPage, any]
    | ["POST", `/v1/_mcp`, McpAnswer, McpMessage]
    | ["DELETE", `/v1/_mcp`, null, any]
    | ["GET", `/v1/_mcp_oauth/authorize`, string, any]
    | ["GET", `/v1/_mcp_oauth/callback`, string, any]
    | ["GET", `/v1/_mcp_oauth/client.json`, McpClientDocument, any]
    | ["GET", `/v1/_mcp_servers`, McpServerList, any]
    | ["POST", `/v1/_mcp_servers/${string}/login`, McpLoginBegun, McpLogin]
    | ["POST", `/v1/_mcp_servers/${string}/probe`, McpToolList, any]
    | ["GET", `/v1/_mcp_servers/${string}/tools`, McpToolList, any]
    | ["POST", `/v1/_mcpserverdef`, DefinitionVersion | DefinitionVersions | DefinitionPromoted | DefinitionRolledBack | DefinitionRetired | DefinitionVerified, MCPServerDefOperation]
    | ["GET", `/v1/_mcpserverdef/names`, DefinitionNames, any]
    | ["GET", `/v1/_me`, Me, any]
    | ["GET", `/v1/_memory/at`, MemoryAt, any]
    | ["POST", `/v1/_memory/backfill_embeddings`, MemoryBackfillEmbeddings, any]
    | ["GET", `/v1/_memory/changes`, string, any]
    | ["GET", `/v1/_memory/embed_stats`, MemoryEmbedStats, any]
    | ["POST", `/v1/_memory/purge_stale_embeddings`, MemoryPurgeStaleEmbeddings, any]
    | ["POST", `/v1/_memory/reembed`, MemoryReembed, any]
    | ["GET", `/v1/_memory/scopes`, MemoryScopes, any]
    | ["GET", `/v1/_memory/scopes/${string}`, MemoryScopeIds, any]
    | ["DELETE", `/v1/_memory/scopes/${string}/${string}`, MemoryScopeDropped, any]
    | ["GET", `/v1/_memory/scopes/${string}/${string}/keys`, MemoryEntries, any]
    | ["GET", `/v1/_memory/scopes/${string}/${string}/keys/${string}`, MemoryEntry, any]
    | ["PUT", `/v1/_memory/scopes/${string}/${string}/keys/${string}`, MemoryWritten, MemoryPut]
    | ["DELETE", `/v1/_memory/scopes/${string}/${string}/keys/${string}`, null, any]
    | ["POST", `/v1/_memory/search`, MemoryHits, MemorySearch]
    | ["POST", `/v1/_memory/sql`, MemorySqlRows, MemorySqlQuery]
    | ["GET", `/v1/_memory/superseded`, MemorySuperseded, any]
    | ["GET", `/v1/_memory/usage`, MemoryUsage, any]
    | ["POST", `/v1/_memorybackenddef`, DefinitionVersion | DefinitionVersions | DefinitionPromoted | DefinitionRolledBack | DefinitionRetired, MemoryBackendDefOperation]
    | ["GET", `/v1/_memorybackenddef/names`, DefinitionNames, any]
    | ["GET", `/v1/_metrics/runs/${string}`, RunMetrics, any]
    | ["GET", `/v1/_metrics/samples`, SampleList, any]
    | ["GET", `/v1/_metrics/summary`, SampleSummary, any]
    | ["GET", `/v1/_models`, ModelAliasList, any]
    | ["POST", `/v1/_operatortokendef`, TokenMade | TokenRetiredAnswer | TokenRow | TokenVersions, OperatorTokenOperation]
    | ["GET", `/v1/_operatortokendef/names`, TokenNames, any]
    | ["GET", `/v1/_partitions`, PartitionList, any]
    | ["POST", `/v1/_pause`, PauseApplied, PauseBody]
    | ["GET", `/v1/_presets`, PresetList, any]
    | ["GET", `/v1/_presets/${string}`, PresetContent, any]
    | ["GET", `/v1/_projections`, ProjectionLag, any]
    | ["GET", `/v1/_projections/problems`, ProjectionProblemReport, any]
    | ["GET", `/v1/_providers/${string}/models`, ProviderModels, any]
    | ["GET", `/v1/_quotas`, QuotaList, any]
    | ["PUT", `/v1/_quotas`, QuotaRow, QuotaPut]
    | ["GET", `/v1/_repair`, FoldedAggregate, any]
    | ["POST", `/v1/_repair`, AggregateRepaired, RepairBody]
    | ["GET", `/v1/_resident`, ResidentList, any]
    | ["POST", `/v1/_resident/${string}/cancel`, ResidentTurnCancelled, ReasonBody]
    | ["POST", `/v1/_resident/${string}/close`, ResidentClosed, ReasonBody]
    | ["POST", `/v1/_resolve/probe`, Resolver, any]
    | ["GET", `/v1/_resolver`, Resolver, any]
    | ["POST", `/v1/_resume`, PauseLifted, ResumeBody]
    | ["GET", `/v1/_retention`, RetentionView, any]
    | ["GET", `/v1/_routing`, Routing, any]
    | ["GET", `/v1/_runnable-agents`, RunnableAgents, any]
    | ["GET", `/v1/_runnable-agents/${string}`, AgentDefinitionView, any]
    | ["POST", `/v1/_scheduledef`, DefinitionVersion | DefinitionVersions | DefinitionPromoted | DefinitionRolledBack | DefinitionRetired, ScheduleDefOperation]
    | ["GET", `/v1/_scheduledef/names`, DefinitionNames, any]
    | ["GET", `/v1/_schedules/list-all`, ScheduleList, any]
    | ["GET", `/v1/_schedules/preview`, ScheduleTimesPreview, any]
    | ["GET", `/v1/_schedules/${string}/fires`, ScheduleFires, any]
    | ["POST", `/v1/_schedules/${string}/pause`, SchedulePauseState, any]
    | ["GET", `/v1/_schedules/${string}/preview`, SchedulePreview, any]
    | ["POST", `/v1/_schedules/${string}/resume`, SchedulePauseState, any]
    | ["POST", `/v1/_schedules/${string}/run-now`, ScheduleFiredNow, any]
    | ["GET", `/v1/_schedules/${string}/state`, ScheduleState, any]
    | ["POST", `/v1/_skilldef`, DefinitionVersion | DefinitionVersions | DefinitionPromoted | DefinitionRolledBack | DefinitionRetired | DefinitionVerified, SkillDefOperation]
    | ["GET", `/v1/_skilldef/names`, DefinitionNames, any]
    | ["POST", `/v1/_snapshots`, StateFile, SnapshotBody]
    | ["GET", `/v1/_snapshots`, StateFileList, any]
    | ["POST", `/v1/_snapshots/restore`, Restored, any]
    | ["GET", `/v1/_snapshots/${string}`, StateFileContent, any]
    | ["DELETE", `/v1/_snapshots/${string}`, null, any]
    | ["GET", `/v1/_snapshots/${string}/export`, State, any]
    | ["POST", `/v1/_snapshots/${string}/restore`, Restored, RestoreBody]
    | ["GET", `/v1/_state`, PauseState, any]
    | ["POST", `/v1/_teamdef`, DefinitionVersion | DefinitionVersions | DefinitionPromoted | DefinitionRolledBack | DefinitionRetired | DefinitionDeleted | DefinitionVerified | DefinitionDrawn, TeamDefOperation]
    | ["GET", `/v1/_teamdef/names`, DefinitionNames, any]
    | ["GET", `/v1/_tenants`, TenantList, any]
    | ["GET", `/v1/_usage`, UsageReport, any]
    | ["POST", `/v1/_users`, RegisteredUser, UserRegister]
    | ["GET", `/v1/_users`, UserList, any]
    | ["PATCH", `/v1/_users/${string}`, RegisteredUser, UserChange]
    | ["DELETE", `/v1/_users/${string}`, null, any]
    | ["GET", `/v1/_users/${string}`, InspectedUser, any]
    | ["POST", `/v1/_users/${string}/tokens`, UserTokenMade, UserTokenMint]
    | ["GET", `/v1/_users/${string}/tokens`, UserTokens, any]
    | ["DELETE", `/v1/_users/${string}/tokens/${string}`, UserTokenRevoked, any]
    | ["POST", `/v1/_volumedef`, Volume | MadeVolumes | VolumeRemoved, VolumeDefOperation]
    | ["GET", `/v1/_volumes`, Volumes, any]
    | ["GET", `/v1/_volumes/ephemeral`, EphemeralVolumes, any]
    | ["POST", `/v1/_webhookdef`, DefinitionVersion | DefinitionVersions | DefinitionPromoted | DefinitionRolledBack | DefinitionRetired, WebhookDefOperation]
    | ["GET", `/v1/_webhookdef/names`, DefinitionNames, any]
    | ["POST", `/v1/_webhooks/${string}`, WebhookAnswer, WebhookBody]
    | ["GET", `/v1/_webhooks/${string}/recent-deliveries`, WebhookDeliveries, any]
    | ["POST", `/v1/_webhooks/${string}/replay`, WebhookReplayed | WebhookAnswer, WebhookReplay]
    | ["POST", `/v1/_webhooks/${string}/test`, WebhookReport | WebhookAnswer, WebhookBody]
    | ["POST", `/v1/_webhooks/${string}/${string}`, WebhookAnswer, WebhookBody]
    | ["GET", `/v1/_webhooks/${string}/${string}/recent-deliveries`, WebhookDeliveries, any]
    | ["POST", `/v1/_webhooks/${string}/${string}/replay`, WebhookReplayed, WebhookReplay]
    | ["POST", `/v1/_webhooks/${string}/${string}/test`, WebhookReport, WebhookBody]
    | ["GET", `/v1/agents/${string}`, Run, any]
    | ["POST", `/v1/agents/${string}/cancel`, Cancelled, CancelRunBody]
    | ["GET", `/v1/agents/${string}/channels`, AgentCursors, any]
    | ["GET", `/v1/client-tools`, null, any]
    | ["GET", `/v1/config`, ConfigView, any]
    | ["GET", `/v1/docs`, string, any]
    | ["POST", `/v1/events`, CloudEventAnswer | CloudEventResults, CloudEvent]
    | ["GET", `/v1/events`, EventList, any]
    | ["GET", `/v1/events/${string}/${string}/${string}`, EventRecord, any]
    | ["POST", `/v1/hooks`, HookCreated, HookBody]
    | ["GET", `/v1/hooks`, HookList, any]
    | ["DELETE", `/v1/hooks/${string}`, HookRemoved, any]
    | ["GET", `/v1/interrupts`, InterruptList, any]
    | ["GET", `/v1/openapi.json`, Record<string, any>, any]
    | ["GET", `/v1/openapi.yaml`, string, any]
    | ["POST", `/v1/runs`, string, RunBody]
    | ["GET", `/v1/runs`, RunList, any]
    | ["POST", `/v1/runs/bulk`, BulkAction, BulkBody]
    | ["GET", `/v1/runs/counts`, RunCountsView, any]
    | ["POST", `/v1/runs/import`, Imported, any]
    | ["GET", `/v1/runs/stream`, string, any]
    | ["GET", `/v1/runs/${string}`, Run, any]
    | ["GET", `/v1/runs/${string}/blame`, Blame, any]
    | ["POST", `/v1/runs/${string}/calls/${string}/resolve`, CallResolved, ResolveBody]
    | ["POST", `/v1/runs/${string}/cancel`, TurnCancelled, CancelBody]
    | ["POST", `/v1/runs/${string}/compact`, Compacted, ReasonBody]
    | ["GET", `/v1/runs/${string}/diff`, RunComparison, any]
    | ["GET", `/v1/runs/${string}/export`, string, any]
    | ["POST", `/v1/runs/${string}/fork`, string, ForkBody]
    | ["POST", `/v1/runs/${string}/input`, InputAcknowledged, InputBody]
    | ["GET", `/v1/runs/${string}/interrupts`, InterruptList, any]
    | ["POST", `/v1/runs/${string}/interrupts/${string}/resolve`, InterruptResolved, InterruptBody]
    | ["POST", `/v1/runs/${string}/pause`, Pausing, ReasonBody]
    | ["POST", `/v1/runs/${string}/quarantine`, Quarantined, ReasonBody]
    | ["POST", `/v1/runs/${string}/release`, Released, ReasonBody]
    | ["GET", `/v1/runs/${string}/replay`, RunReplay, any]
    | ["POST", `/v1/runs/${string}/resume`, Resumed, any]
    | ["GET", `/v1/runs/${string}/state`, RunStateAt, any]
    | ["GET", `/v1/runs/${string}/stream`, string, any]
    | ["POST", `/v1/runs:batch`, Batch, BatchBody]
    | ["POST", `/v1/sessions/${string}/messages`, string, MessageBody]
    | ["POST", `/v1/sessions/${string}/replay`, SessionCopied, ReplayBody]
    | ["GET", `/v1/sessions/${string}/transcript`, Transcript, any]
    | ["GET", `/v1/users/${string}/agents`, AgentList, any]
    | ["GET", `/v1/users/${string}/agents/stream`, string, any]
    | ["POST", `/v1/users/${string}/channels/${string}/ack`, ChannelAcknowledged, UserChannelAck]
    | ["GET", `/v1/users/${string}/channels/${string}/peek`, ChannelMessages, any]
    | ["POST", `/v1/users/${string}/channels/${string}/publish`, ChannelPublished, UserChannelPublish]
    | ["POST", `/v1/users/${string}/channels/${string}/subscribe`, ChannelBatch, UserChannelSubscribe]
    | ["GET", `/v1/users/${string}/interrupts`, InterruptList, any];
}
