#include "ops/kernels/segment_save.h"

#include <string_view>
#include <utility>

#include "ops/format/dense_block.h"
#include "ops/io/store.h"

namespace adaptcp {

namespace tf = tensorflow;

namespace {

// Dense tensors are cut into blocks of at most this size.
constexpr uint64_t kDenseBlockBytes = uint64_t{4} << 20;

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

Status SegmentSave::Create(const Json& request,
                           const std::vector<std::unique_ptr<Group>>& groups,
                           std::unique_ptr<SegmentSave>* save) {
  save->reset(new SegmentSave());
  const bool base = request.value("kind", "") == "base";
  SegmentHeader header;
  header.run = request.value("run", "");
  header.generation = request.value("generation", uint64_t{0});
  header.sequence = request.value("sequence", uint32_t{0});
  header.ps = request.value("ps", 0);
  for (const auto& group : groups) {
    header.groups.push_back(group->spec());
    (*save)->names_.push_back(group->spec().name);
  }
  const std::string directory = request.value("directory", "");
  const uint64_t segment_bytes = request.value("segment_bytes", uint64_t{0});
  (*save)->block_bytes_ = request.value("block_bytes", size_t{0});
  if (directory.empty() || segment_bytes == 0 || (*save)->block_bytes_ == 0) {
    return Status::InvalidArgument(
        "a save needs directory, segment_bytes and block_bytes, received: " +
        request.dump());
  }
  std::vector<std::vector<Quantization>> quantization;
  ADAPTCP_RETURN_IF_ERROR(ParseQuantizations(request, groups, &quantization));
  const auto files = [&](SegmentKind kind) {
    header.kind = kind;
    return std::make_unique<SegmentFiles>(
        header,
        directory + "/" + SegmentKindName(kind) + "-ps" +
            std::to_string(header.ps),
        segment_bytes, NewSink);
  };
  const auto open = [&](Output* output, SegmentKind kind) {
    output->kind = kind;
    output->files = files(kind);
    for (const auto& group : groups) {
      output->builders.push_back(
          std::make_unique<RowBlockBuilder>(group->spec(), group->index(),
                                            quantization[output->builders.size()]));
    }
  };
  open(&(*save)->cold_, base ? SegmentKind::kBase : SegmentKind::kIncrement);
  open(&(*save)->hot_, SegmentKind::kDifferential);
  header.groups.clear();
  (*save)->dense_ = files(SegmentKind::kDense);
  return Status::Ok();
}

Status SegmentSave::Flush(Output* output, size_t group) {
  RowBlockBuilder* builder = output->builders[group].get();
  if (builder->rows() == 0) return Status::Ok();
  builder->Encode(&block_);
  builder->Clear();
  row_bytes_[names_[group]] += block_.record.size();
  return output->files->Append(block_);
}

Status SegmentSave::Add(const CapturedBatch& batch) {
  const uint32_t group = batch.group_index();
  ADAPTCP_RETURN_IF_ERROR(batch.AppendTo(cold_.builders[group].get(),
                                         hot_.builders[group].get()));
  for (Output* output : {&cold_, &hot_}) {
    if (output->builders[group]->bytes() >= block_bytes_) {
      ADAPTCP_RETURN_IF_ERROR(Flush(output, group));
    }
  }
  return Status::Ok();
}

Status SegmentSave::AddDense(const Json& slices,
                             const std::vector<tf::Tensor>& tensors) {
  if (!slices.is_array() || slices.size() != tensors.size()) {
    return Status::InvalidArgument("received " + std::to_string(tensors.size()) +
                                   " dense tensors for slices " +
                                   slices.dump());
  }
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
      ADAPTCP_RETURN_IF_ERROR(dense_->Append(block_));
      done += elements;
    }
  }
  return Status::Ok();
}

Status SegmentSave::Finish(Json* objects) {
  *objects = Json::array();
  const auto finish = [&](SegmentKind kind, SegmentFiles* files) -> Status {
    std::vector<SegmentInfo> infos;
    ADAPTCP_RETURN_IF_ERROR(files->Finish(&infos));
    for (const SegmentInfo& info : infos) {
      Json dense = Json::array();
      for (const DenseCounts& counts : info.dense) dense.push_back(counts.name);
      objects->push_back({{"path", info.path},
                          {"kind", SegmentKindName(kind)},
                          {"bytes", info.bytes},
                          {"crc32c", info.crc32c},
                          {"rows", info.rows},
                          {"tombstones", info.tombstones},
                          {"dense", dense}});
    }
    return Status::Ok();
  };
  for (Output* output : {&cold_, &hot_}) {
    for (size_t g = 0; g < output->builders.size(); ++g) {
      ADAPTCP_RETURN_IF_ERROR(Flush(output, g));
    }
    ADAPTCP_RETURN_IF_ERROR(finish(output->kind, output->files.get()));
  }
  return finish(SegmentKind::kDense, dense_.get());
}

uint64_t SegmentSave::bytes() const {
  return cold_.files->bytes() + hot_.files->bytes() + dense_->bytes();
}

}  // namespace adaptcp
