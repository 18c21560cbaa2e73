#include "ops/kernels/segment_encoder.h"

#include <cstdio>
#include <string_view>
#include <utility>

#include "ops/format/dense_block.h"

namespace adaptcp {

namespace tf = tensorflow;

namespace {

// Dense tensors are cut into blocks of at most this size.
constexpr uint64_t kDenseBlockBytes = uint64_t{4} << 20;
// Blocks of an encoder that are being gathered take at most this many times
// block_bytes, however many groups there are.
constexpr size_t kOpenBlocks = 16;
// A block of tombstones is small, and what a restore makes of it is not: that is
// at most so many times the size that blocks are meant to have.
constexpr size_t kMostRestored = 16;

// How the tables of each group are to be written.
Status ParseQuantizations(const Json& request,
                          const std::vector<std::unique_ptr<Group>>& groups,
                          std::vector<std::vector<Quantization>>* parsed) {
  const Json all = request.value("quantization", Json::object());
  for (const auto& group : groups) {
    std::vector<Quantization>& tables = parsed->emplace_back();
    for (const Json& item : all.value(group->spec().name, Json::array())) {
      ADAPTCP_RETURN_IF_ERROR(ParseQuantization(
          item.at(0).get<std::string>(), item.at(1).get<int>(),
          &tables.emplace_back()));
    }
    if (!tables.empty() && tables.size() != group->spec().tables.size()) {
      return Status::InvalidArgument(
          "quantization of group " + group->spec().name + ": Received: " +
          std::to_string(tables.size()) + " tables. Expected: " +
          std::to_string(group->spec().tables.size()));
    }
  }
  return Status::Ok();
}

}  // namespace

Status SegmentPlan::Create(const Json& request, const SaveOptions& options,
                           const std::vector<std::unique_ptr<Group>>& groups,
                           SegmentTransfer* transfer,
                           std::unique_ptr<SegmentPlan>* plan) {
  plan->reset(new SegmentPlan());
  SegmentPlan& made = **plan;
  made.base_ = request.value("kind", "") == "base";
  made.header_.run = request.value("run", "");
  made.header_.generation = request.value("generation", uint64_t{0});
  made.header_.sequence = request.value("sequence", uint32_t{0});
  made.header_.ps = request.value("ps", 0);
  for (const auto& group : groups) {
    made.header_.groups.push_back(group->spec());
  }
  made.directory_ = request.value("directory", "");
  made.segment_bytes_ = options.segment_bytes;
  made.block_bytes_ = options.block_bytes;
  made.transfer_ = transfer;
  for (const SegmentKind kind :
       {made.cold_kind(), SegmentKind::kDifferential, SegmentKind::kDense}) {
    made.next_[kind] = 0;
  }
  return ParseQuantizations(request, groups, &made.quantization_);
}

std::unique_ptr<SegmentFiles> SegmentPlan::Files(SegmentKind kind) {
  SegmentHeader header = header_;
  header.kind = kind;
  if (kind == SegmentKind::kDense) header.groups.clear();
  const std::string prefix = directory_ + "/" + SegmentKindName(kind) + "-ps" +
                             std::to_string(header.ps);
  std::atomic<int>* const next = &next_.at(kind);
  return std::make_unique<SegmentFiles>(
      std::move(header), segment_bytes_,
      [prefix, next] {
        char number[16];
        std::snprintf(number, sizeof(number), "-%05d", (*next)++);
        return prefix + number + ".seg";
      },
      [this](const std::string& path, std::unique_ptr<ByteSink>* sink) {
        return transfer_->Open(path, sink);
      });
}

std::vector<std::unique_ptr<RowBlockBuilder>> SegmentPlan::Builders() const {
  std::vector<std::unique_ptr<RowBlockBuilder>> builders;
  for (size_t g = 0; g < header_.groups.size(); ++g) {
    builders.push_back(std::make_unique<RowBlockBuilder>(header_.groups[g], g,
                                                         quantization_[g]));
  }
  return builders;
}

void SegmentEncoder::Open(SegmentKind kind) {
  Output& output = outputs_[kind];
  if (output.files != nullptr) return;
  output.files = plan_->Files(kind);
  if (kind != SegmentKind::kDense) output.builders = plan_->Builders();
}

Status SegmentEncoder::MakeRoom() {
  return plan_->transfer()->IsStuck() ? SealAll() : Status::Ok();
}

Status SegmentEncoder::SealAll() {
  for (auto& [kind, output] : outputs_) {
    ADAPTCP_RETURN_IF_ERROR(output.files->Seal());
  }
  return Status::Ok();
}

Status SegmentEncoder::Append(Output* output) {
  ADAPTCP_RETURN_IF_ERROR(
      plan_->transfer()->WaitForRoom([this] { return SealAll(); }));
  return output->files->Append(block_);
}

Status SegmentEncoder::Flush(Output* output, size_t group) {
  RowBlockBuilder* builder = output->builders[group].get();
  if (builder->rows() == 0) return Status::Ok();
  builder->Encode(&block_);
  builder->Clear();
  row_bytes_[builder->group().name] += block_.record.size();
  return Append(output);
}

Status SegmentEncoder::FlushFullest() {
  Output* fullest = nullptr;
  size_t group = 0, most = 0, total = 0;
  for (auto& [kind, output] : outputs_) {
    for (size_t g = 0; g < output.builders.size(); ++g) {
      if (output.builders[g]->rows() == 0) continue;
      const size_t bytes = output.builders[g]->bytes();
      total += bytes;
      if (bytes <= most) continue;
      fullest = &output;
      group = g;
      most = bytes;
    }
  }
  // A block may be meant to be larger than what there is memory for.
  if (fullest == nullptr || total / kOpenBlocks < plan_->block_bytes()) {
    return Status::Ok();
  }
  return Flush(fullest, group);
}

Status SegmentEncoder::Add(const CapturedBatch& batch) {
  const uint32_t group = batch.group_index();
  const SegmentKind kinds[] = {plan_->cold_kind(), SegmentKind::kDifferential};
  for (const SegmentKind kind : kinds) Open(kind);
  ADAPTCP_RETURN_IF_ERROR(
      batch.AppendTo(outputs_[kinds[0]].builders[group].get(),
                     outputs_[kinds[1]].builders[group].get()));
  for (const SegmentKind kind : kinds) {
    Output& output = outputs_[kind];
    const RowBlockBuilder& builder = *output.builders[group];
    if (builder.bytes() >= plan_->block_bytes() ||
        builder.restored_bytes() >= kMostRestored * plan_->block_bytes()) {
      ADAPTCP_RETURN_IF_ERROR(Flush(&output, group));
    }
  }
  if (2 * plan_->groups().size() <= kOpenBlocks) return Status::Ok();
  return FlushFullest();
}

Status SegmentEncoder::AddDense(const Json& slices,
                                const std::vector<tf::Tensor>& tensors) {
  if (!slices.is_array() || slices.size() != tensors.size()) {
    return Status::InvalidArgument("received " + std::to_string(tensors.size()) +
                                   " dense tensors for slices " +
                                   slices.dump());
  }
  Open(SegmentKind::kDense);
  Output* const output = &outputs_[SegmentKind::kDense];
  for (size_t i = 0; i < tensors.size(); ++i) {
    const tf::Tensor& tensor = tensors[i];
    DenseSlice slice;
    slice.name = slices[i].value("name", "");
    ADAPTCP_RETURN_IF_ERROR(ToFileType(tensor.dtype(), &slice.dtype));
    slice.shape = slices[i].value("shape", std::vector<uint64_t>{});
    slice.offset = slices[i].value("offset", std::vector<uint64_t>{});
    for (const auto size : tensor.shape()) {
      slice.slice_shape.push_back(size.size);
    }
    uint64_t done = 0;  // elements; the parts follow one another
    for (const DenseSlice& part : SplitSlice(slice, kDenseBlockBytes)) {
      const uint64_t elements = part.elements();
      if (slice.dtype == DType::kString) {
        const auto flat = tensor.flat<tf::tstring>();
        std::vector<std::string_view> views;
        for (uint64_t e = done; e < done + elements; ++e) {
          views.emplace_back(flat(e).data(), flat(e).size());
        }
        ADAPTCP_RETURN_IF_ERROR(EncodeStringDenseBlock(part, views, &block_));
      } else {
        const size_t size = DTypeSize(slice.dtype);
        ADAPTCP_RETURN_IF_ERROR(EncodeDenseBlock(
            part, static_cast<const char*>(tensor.data()) + done * size,
            elements * size, &block_));
      }
      ADAPTCP_RETURN_IF_ERROR(Append(output));
      done += elements;
    }
  }
  return Status::Ok();
}

Status SegmentEncoder::Finish(Json* objects) {
  // A block may have to wait for room, and have all files sealed for it: none is
  // finished before the last one.
  for (auto& [kind, output] : outputs_) {
    for (size_t g = 0; g < output.builders.size(); ++g) {
      ADAPTCP_RETURN_IF_ERROR(Flush(&output, g));
    }
  }
  for (auto& [kind, output] : outputs_) {
    std::vector<SegmentInfo> infos;
    ADAPTCP_RETURN_IF_ERROR(output.files->Finish(&infos));
    for (const SegmentInfo& info : infos) {
      objects->push_back({{"path", info.path},
                          {"kind", SegmentKindName(kind)},
                          {"bytes", info.bytes},
                          {"crc32c", info.crc32c},
                          {"rows", info.rows}});
    }
  }
  return Status::Ok();
}

}  // namespace adaptcp
